/** The routes, behind `#`: so the page needs nothing of the server's paths and works below any prefix. */

import {
  createHashHistory,
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  redirect,
} from "@tanstack/react-router";
import { PAGES } from "./pages";
import { Shell } from "./parts/Shell";
import { Broken, Nothing } from "./parts/states";

const root = createRootRoute({ component: Shell, notFoundComponent: Nothing });

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/tools" });
  },
});

const pages = PAGES.map(({ path, load }) =>
  createRoute({ getParentRoute: () => root, path, component: lazyRouteComponent(load, "Page") }),
);

export const router = createRouter({
  routeTree: root.addChildren([home, ...pages]),
  history: createHashHistory(),
  // Plain texts, so that a person can read and write an address.
  parseSearch: (text) => Object.fromEntries(new URLSearchParams(text)),
  stringifySearch: (search) => {
    const filled = Object.entries(search).filter(([, value]) => typeof value === "string" && value !== "");
    const text = new URLSearchParams(filled as [string, string][]).toString();
    return text === "" ? "" : `?${text}`;
  },
  scrollRestoration: true,
  defaultErrorComponent: Broken,
  defaultPreload: false,
});
