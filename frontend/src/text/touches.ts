/** What a call may touch, as the server says it in English, and in German; the first that fits is taken. */
export const touches: readonly [string, string][] = [
  ["nothing of this machine", "nichts auf diesem Rechner"],
  ["network: any public host", "Netzwerk: jeder öffentliche Host"],
  ["network: this machine's whole network", "Netzwerk: das ganze Netz dieses Rechners"],
  ["network: the host of {}", "Netzwerk: der Host von {}"],
  ["network: {}", "Netzwerk: {}"],
  ["read {}", "lesen: {}"],
  ["write {}", "schreiben: {}"],
  ["secret {}", "Secret {}"],
  ["environment variable {}", "Umgebungsvariable {}"],
  ["code: values of a call may be run as code", "Code: Werte eines Aufrufs können als Code laufen"],
  ["run inside this process, not confined", "läuft in diesem Prozess, nicht eingeschränkt"],
  ["everything that the tools it calls may touch: {}", "alles, worauf die Tools zugreifen dürfen, die es aufruft: {}"],
];
