import { Visible } from "./Visible";

/** Paths, one a line: the name stands out from its folder. */
export function FileList({ paths, label = "Files" }: { readonly paths: readonly string[]; readonly label?: string }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrollable region must take focus
    <ul className="file-text file-list" tabIndex={0} aria-label={label}>
      {paths.map((path, index) => {
        const folder = path.slice(0, path.replace(/\/$/, "").lastIndexOf("/") + 1);
        return (
          <li key={index}>
            <span className="dim">
              <Visible text={folder} />
            </span>
            <Visible text={path.slice(folder.length)} />
          </li>
        );
      })}
    </ul>
  );
}
