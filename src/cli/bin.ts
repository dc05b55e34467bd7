#!/usr/bin/env node
/** The executable of `effect-turn`. What it cannot run without is checked first, in words that older Nodes understand. */
const refuse = (words: string): never => {
  process.stderr.write(`effect-turn: ${words}\n`)
  process.exit(2)
}

const [major = 0, minor = 0] = process.versions.node.split(".").map(Number)
if (major < 22 || (major === 22 && minor < 19)) {
  refuse(`needs Node 22.19 or newer, and this is ${process.version}`)
}

try {
  const { runProcess } = await import("./process.ts")
  runProcess(process.argv.slice(2))
} catch (error) {
  const { code, message } = error as NodeJS.ErrnoException
  if (code !== "ERR_MODULE_NOT_FOUND" || !message.includes("@effect/platform-node")) throw error
  refuse("the command line needs the package @effect/platform-node: npm install @effect/platform-node")
}
