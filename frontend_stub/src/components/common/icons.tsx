/** The page's icons, drawn on a 20 × 20 grid in the colour of their text. They carry no meaning of their own. */
import type { ReactNode } from "react";

function Icon({ children, size = 18 }: { readonly children: ReactNode; readonly size?: number }) {
  return (
    <svg
      className="icon"
      width={size}
      height={size}
      viewBox="0 0 20 20"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.6"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
      focusable="false"
    >
      {children}
    </svg>
  );
}

interface IconProps {
  readonly size?: number;
}

export const PlusIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="M10 4v12M4 10h12" />
  </Icon>
);

export const MenuIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="M3.5 6h13M3.5 10h13M3.5 14h13" />
  </Icon>
);

export const BackIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="M7 5 3.5 8.5 7 12M4 8.5h8a4 4 0 0 1 0 8H9" />
  </Icon>
);

export const CloseIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="m5 5 10 10M15 5 5 15" />
  </Icon>
);

export const MoreIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="M5 10h.01M10 10h.01M15 10h.01" strokeWidth="2.4" />
  </Icon>
);

export const SearchIcon = (props: IconProps) => (
  <Icon {...props}>
    <circle cx="9" cy="9" r="5" />
    <path d="M13 13l3.5 3.5" />
  </Icon>
);

export const SendIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="M10 16V4.5M5 9.5l5-5 5 5" strokeWidth="1.9" />
  </Icon>
);

export const StopIcon = (props: IconProps) => (
  <Icon {...props}>
    <rect x="5.5" y="5.5" width="9" height="9" rx="1.5" fill="currentColor" stroke="none" />
  </Icon>
);

export const PauseIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="M7 5v10M13 5v10" strokeWidth="2.2" />
  </Icon>
);

export const PlayIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="M7 4.8v10.4l8-5.2z" fill="currentColor" />
  </Icon>
);

export const ChevronIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="m7.5 5 5 5-5 5" />
  </Icon>
);

export const DownIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="M10 4v11.5M5 10.5l5 5 5-5" />
  </Icon>
);

export const CheckIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="m4.5 10.5 3.5 3.5 7.5-8" />
  </Icon>
);

export const CrossIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="m6 6 8 8M14 6l-8 8" />
  </Icon>
);

export const TerminalIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="m4 6 4 4-4 4M10 14.5h6" />
  </Icon>
);

export const FileIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="M5 3h6.5L15 6.5V17H5zM11.5 3v3.5H15" />
  </Icon>
);

export const UsersIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="M10.5 7a2.75 2.75 0 1 1-5.5 0 2.75 2.75 0 0 1 5.5 0M2.5 16.5c0-3 2.2-4.8 5.2-4.8s5.2 1.8 5.2 4.8M12.8 4.4a2.75 2.75 0 0 1 0 5.2M14.6 12.1c1.8.6 2.9 2.2 2.9 4.4" />
  </Icon>
);

export const PencilIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="m4 16 .8-3.4L13.2 4.2 15.8 6.8 7.4 15.2zM11.5 6l2.5 2.5" />
  </Icon>
);

export const ThoughtIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="M7 13.5a5 5 0 1 1 6 0V15H7zM8 17.5h4" />
  </Icon>
);

export const ListIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="m3.5 5.5 1.2 1.2L7 4.5M3.5 13l1.2 1.2L7 12M10 6h6.5M10 13.5h6.5" />
  </Icon>
);

export const PlugIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="M7 3v4M13 3v4M5 7h10v2.5a5 5 0 0 1-10 0zM10 14.5V17" />
  </Icon>
);

export const CompassIcon = (props: IconProps) => (
  <Icon {...props}>
    <circle cx="10" cy="10" r="7" />
    <path d="m12.8 7.2-1.6 4-4 1.6 1.6-4z" />
  </Icon>
);

export const CompressIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="M4 10h12M10 2.5v4.5M7.5 5 10 7.3 12.5 5M10 17.5V13M7.5 15 10 12.7 12.5 15" />
  </Icon>
);

export const AlertIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="M10 3.5 17.2 16H2.8zM10 8.5v3.2M10 13.9v.01" />
  </Icon>
);

export const InfoIcon = (props: IconProps) => (
  <Icon {...props}>
    <circle cx="10" cy="10" r="7" />
    <path d="M10 9.3v4M10 6.5v.01" />
  </Icon>
);

export const GearIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="M3.5 6h7M14.5 6h2M3.5 14h2M9.5 14h7" />
    <circle cx="12.5" cy="6" r="2" />
    <circle cx="7.5" cy="14" r="2" />
  </Icon>
);

export const CopyIcon = (props: IconProps) => (
  <Icon {...props}>
    <rect x="7" y="7" width="9" height="9.5" rx="1.5" />
    <path d="M13 7V4.5A1 1 0 0 0 12 3.5H5a1 1 0 0 0-1 1V12a1 1 0 0 0 1 1h2" />
  </Icon>
);

export const SunIcon = (props: IconProps) => (
  <Icon {...props}>
    <circle cx="10" cy="10" r="3.2" />
    <path d="M10 2.8v1.7M10 15.5v1.7M2.8 10h1.7M15.5 10h1.7M4.9 4.9l1.2 1.2M13.9 13.9l1.2 1.2M15.1 4.9l-1.2 1.2M6.1 13.9l-1.2 1.2" />
  </Icon>
);

export const MoonIcon = (props: IconProps) => (
  <Icon {...props}>
    <path d="M16 11.8A6.5 6.5 0 0 1 8.2 4a6.5 6.5 0 1 0 7.8 7.8z" />
  </Icon>
);

export const ScreenIcon = (props: IconProps) => (
  <Icon {...props}>
    <rect x="3" y="4" width="14" height="9.5" rx="1.2" />
    <path d="M7.5 16.5h5M10 13.5v3" />
  </Icon>
);

export const BranchIcon = (props: IconProps) => (
  <Icon {...props}>
    <circle cx="6" cy="4.5" r="1.8" />
    <circle cx="6" cy="15.5" r="1.8" />
    <circle cx="14" cy="6.5" r="1.8" />
    <path d="M6 6.3v7.4M14 8.3c0 3-3 3.4-7.6 5.4" />
  </Icon>
);
