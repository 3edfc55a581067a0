/** What is fetched for a view: loading, there, or failed; asked for again whenever `version` changes. */
import { useEffect, useState } from "react";
import { errorText } from "../../net/http";

export interface Loaded<T> {
  readonly value: T | null;
  readonly error: string;
}

const LOADING: Loaded<never> = { value: null, error: "" };

export function useLoaded<T>(load: () => Promise<T>, version: string): Loaded<T> {
  const [loaded, setLoaded] = useState<Loaded<T> & { readonly of: string }>({ ...LOADING, of: "" });
  useEffect(() => {
    let current = true;
    load().then(
      (value) => {
        if (current) setLoaded({ value, error: "", of: version });
      },
      (error: unknown) => {
        if (current) setLoaded({ value: null, error: errorText(error), of: version });
      },
    );
    return () => {
      current = false;
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the version says when there is something else to load
  }, [version]);
  return loaded;
}
