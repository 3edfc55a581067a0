/** Drydock's mark: a hull on the blocks of a stepped dock, its waterline where the paint changes. */
import { useId } from "react";

export function Logo({ size = 28 }: { readonly size?: number }) {
  const clip = useId();
  return (
    <svg className="logo" width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <path className="logo-dock" d="M1 14h3.6v6.2h3V26h16.8v-5.8h3V14H31v16.5H1zM14.3 21h3.4v5h-3.4z" />
      <clipPath id={clip}>
        <path d="M6.6 3h18.8v9.2c0 5.9-3.5 9.6-9.4 9.6s-9.4-3.7-9.4-9.6z" />
      </clipPath>
      <g clipPath={`url(#${clip})`}>
        <path className="logo-hull" d="M6 2h20v9H6z" />
        <path className="logo-line" d="M6 10.6h20v1.8H6z" />
        <path className="logo-keel" d="M6 12.4h20V23H6z" />
      </g>
    </svg>
  );
}
