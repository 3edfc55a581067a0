/** Drydock's mark: a hull on the blocks of a stepped dock, its waterline where the paint changes. */
import { useId } from "react";

export function Logo({ size = 28 }: { readonly size?: number }) {
  const clip = useId();
  return (
    <svg className="logo" width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <path className="logo-dock" d="M1.5 11H6v5.5h2.5V22H12v4.5h8V22h3.5v-5.5H26V11h4.5v19.5h-29z" />
      <clipPath id={clip}>
        <path d="M9 2.5h14c.3 8.5-1.5 15-5.4 20.2q-1.6 1.6-3.2 0C10.5 17.5 8.7 11 9 2.5z" />
      </clipPath>
      <g clipPath={`url(#${clip})`}>
        <path className="logo-hull" d="M8 2h16v10H8z" />
        <path className="logo-line" d="M8 11.5h16v2H8z" />
        <path className="logo-keel" d="M8 13.5h16V25H8z" />
      </g>
    </svg>
  );
}
