/** The parts of the operations page, in their order; it begins with the first. */
export const PARTS = ["usage", "servers", "secrets", "tokens", "policy", "workers", "messages", "machine"] as const;
export type Part = (typeof PARTS)[number];
