import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode, useSyncExternalStore } from "react";
import { createRoot } from "react-dom/client";
import { ApiError } from "./api/client";
import { begin, currentToken, onSession } from "./api/session";
import { Login } from "./parts/Login";
import { applyTheme } from "./parts/theme";
import { router } from "./router";
import "./style/tokens.css";
import "./style/base.css";
import "./style/controls.css";
import "./style/parts.css";
import "./style/shell.css";
import "./style/windows.css";
import { applyLanguage } from "./text";

const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      // A refusal stays one; only a server that does not answer is asked again.
      retry: (count, error) => count < 2 && error instanceof ApiError && error.code === "offline",
      // A server on this machine can be reached while the machine is offline.
      networkMode: "always",
    },
    mutations: { networkMode: "always" },
  },
});

function App() {
  const token = useSyncExternalStore(onSession, currentToken);
  if (token === null) return <Login />;
  return (
    <QueryClientProvider client={client}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  );
}

async function start(): Promise<void> {
  applyTheme();
  applyLanguage();
  await begin();
  const root = document.getElementById("root");
  if (root !== null) createRoot(root).render(<StrictMode><App /></StrictMode>);
}

void start();
