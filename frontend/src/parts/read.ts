/** What a part of the page reads from the server. */

import { useQuery, type UseQueryOptions } from "@tanstack/react-query";
import { type Answered, data } from "../api/client";

/** Read a route, under the key by which its answer is kept and read again. */
export function useRead<T, Chosen = T>(
  queryKey: readonly unknown[],
  read: () => Promise<Answered<T>>,
  options: Omit<UseQueryOptions<T, Error, Chosen>, "queryKey" | "queryFn"> = {},
) {
  return useQuery({ queryKey, queryFn: () => data(read()), ...options });
}
