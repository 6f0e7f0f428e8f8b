// The limits of the public suite, of half a second or a few, are for a machine that does nothing else.
// Where it only waits for so long it waits less than a second.
const later = globalThis.setTimeout
const limits = (call, ms) => ms >= 1_000 || String(call).includes(".abort()")
globalThis.setTimeout = (call, ms, ...more) => later(call, limits(call, ms) ? 20 * ms : ms, ...more)
const limit = AbortSignal.timeout
AbortSignal.timeout = (ms) => limit.call(AbortSignal, 20 * ms)
