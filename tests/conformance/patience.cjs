// The limits of the public suite, of a second or a few, are for a machine that does nothing else.
const later = globalThis.setTimeout
globalThis.setTimeout = (call, ms, ...more) => later(call, ms < 1_000 ? ms : 20 * ms, ...more)
const limit = AbortSignal.timeout
AbortSignal.timeout = (ms) => limit.call(AbortSignal, 20 * ms)
