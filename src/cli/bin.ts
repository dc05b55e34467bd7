#!/usr/bin/env node
/** The executable of `effect-turn`. */
import { runProcess } from "./process.ts"

runProcess(process.argv.slice(2))
