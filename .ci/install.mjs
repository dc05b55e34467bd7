// Runs before `npm start` and `npm test`: installs what the lock file names when node_modules does not have it, so that
// both work on a fresh clone. Plain JavaScript for old versions of Node: the Node that the project itself uses is one of
// the packages that it installs.
import { spawnSync } from "node:child_process"
import { existsSync, readFileSync } from "node:fs"
import { basename, join } from "node:path"
import { fileURLToPath } from "node:url"

const root = fileURLToPath(new URL("..", import.meta.url))
const at = (...parts) => join(root, ...parts)
const packages = (...parts) => JSON.parse(readFileSync(at(...parts), "utf8")).packages

/** What keeps the installed packages from being those of the lock file, or undefined when they are. */
const missing = () => {
  let installed
  try {
    installed = packages("node_modules", ".package-lock.json")
  } catch {
    return "nothing is installed yet"
  }
  const wanted = packages("package-lock.json")
  for (const [path, entry] of Object.entries(wanted)) {
    if (path === "") continue
    const there = installed[path]
    if (there === undefined) {
      if (entry.optional || entry.peer) continue
      return `${path} is not installed`
    }
    if (there.version !== entry.version) return `${path} is ${there.version}, the lock file says ${entry.version}`
    if (!existsSync(at(path, "package.json"))) return `${path} is incomplete`
  }
  const node = spawnSync(
    at("node_modules", "node", "bin", process.platform === "win32" ? "node.exe" : "node"),
    ["-v"],
    {
      encoding: "utf8"
    }
  )
  const version = `v${wanted["node_modules/node"].version}`
  if (node.status !== 0 || node.stdout.trim() !== version) {
    return `the project's own Node ${version} is not installed (its package needs its install script: is ignore-scripts set?)`
  }
  return undefined
}

/** `npm ci`, by the npm that runs this script when there is one. Its output goes to stderr: stdout is the job's. */
const install = () => {
  const args = ["ci", "--include=dev", "--no-fund", "--no-audit"]
  const npm = process.env.npm_execpath
  const options = { cwd: root, stdio: ["ignore", 2, 2] }
  return npm !== undefined && /^npm-cli\.c?js$/.test(basename(npm))
    ? spawnSync(process.execPath, [npm, ...args], options)
    : spawnSync("npm", args, { ...options, shell: process.platform === "win32" })
}

const before = missing()
if (before !== undefined) {
  console.error(`Installing the packages of the lock file: ${before}.`)
  const result = install()
  const after = missing()
  if (after !== undefined) {
    console.error(`The install did not succeed: ${after}.${result.error ? ` (${result.error.message})` : ""}`)
    process.exit(1)
  }
  if (result.status !== 0) {
    console.error("The packages are installed, but the build that follows an install failed: see above.")
  }
}
