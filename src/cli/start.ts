/** What `npm start` runs: the travel agent's turn. */
import { runProcess } from "./process.ts"

runProcess(["demo", ...process.argv.slice(2)])
