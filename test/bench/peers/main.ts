/**
 * `npm run bench:peers`: what a call costs here and on other runtimes, as ratios in one run. `npm run bench:peers -- --turns` runs
 * turns that break at least one of them, and writes `TURNS.md`.
 *
 * The peers are packages of this folder alone: they are installed here when they are absent, and never with the repository. Types
 * are checked with `npx tsc -p test/bench/peers`, once they are there.
 */
import { spawnSync } from "node:child_process"
import { existsSync } from "node:fs"

if (!existsSync(new URL("node_modules/.package-lock.json", import.meta.url))) {
  const { status } = spawnSync("npm", ["ci", "--ignore-scripts"], {
    cwd: import.meta.dirname,
    shell: process.platform === "win32",
    stdio: ["ignore", 2, 2]
  })
  if (status !== 0) throw new Error("the peers could not be installed: see above")
}

if (process.argv.includes("--turns")) await import("./turns.ts")
else await import("./cost.ts")
