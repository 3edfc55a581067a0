/** Something is going on. It stands still for people who asked for less motion. */
export function Spinner() {
  return <span className="spinner" aria-hidden="true" />;
}
