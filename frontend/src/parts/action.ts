/** Changes on the server that a person asks for. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { announce } from "./notices";

type Options<Given, Found> = {
  done?: (found: Found, given: Given) => unknown;
  /** The words for a refusal; null where the page shows `error` in its place. */
  refused?: ((error: Error, given: Given) => string) | null;
};

/** Return what makes a change; afterwards all that is shown is read again. */
export function useAction<Given = void, Found = unknown>(
  act: (given: Given) => Promise<Found>,
  { done, refused = ({ message }) => message }: Options<Given, Found> = {},
) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: act,
    onSuccess: done,
    onError: (error, given) => refused !== null && announce(refused(error, given)),
    onSettled: () => void client.invalidateQueries(),
  });
}
