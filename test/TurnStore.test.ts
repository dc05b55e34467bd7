import { laws } from "./store/laws.ts"
import { describeService } from "./utils/requires.ts"
import * as stores from "./utils/stores.ts"

laws(stores.memory())
laws(stores.keyValueMemory())
laws(stores.keyValueFiles())
laws(stores.sqlite())
await describeService("over PostgreSQL", "PostgreSQL", (address) => laws(stores.postgres(address)))
await describeService("over Redis", "Redis", (address) => laws(stores.redis(address)))
