// Compiles src/ to dist/, from nothing: a module that is gone from src/ must not stay in the package. Also run by npm after
// an install in the checkout and before a pack, so that `npx effect-turn` and the tarball are what the sources say.
import { spawnSync } from "node:child_process"
import { chmodSync, existsSync, rmSync } from "node:fs"
import { fileURLToPath } from "node:url"

const at = (path) => fileURLToPath(new URL(`../${path}`, import.meta.url))

// npx links the checkout into its cache before it runs our program, and has the link prepared: what is built is good enough.
if (
  process.env.npm_command === "exec" && process.env.npm_lifecycle_event === "prepare" &&
  existsSync(at("dist/cli/bin.js"))
) {
  process.exit(0)
}

rmSync(at("dist"), { recursive: true, force: true })
const { status } = spawnSync(process.execPath, [at("node_modules/typescript/bin/tsc"), "-p", at("tsconfig.json")], {
  stdio: "inherit"
})
const bin = at("dist/cli/bin.js")
if (existsSync(bin)) chmodSync(bin, 0o755)
process.exit(status ?? 1)
