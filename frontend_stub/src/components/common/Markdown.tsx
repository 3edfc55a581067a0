/** Text of the agent. Markup of its own is never taken as HTML, and pictures from elsewhere are only linked. */
import type { Element } from "hast";
import { memo } from "react";
import type { ReactNode } from "react";
import ReactMarkdown from "react-markdown";
import type { Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { FoldedCodeBlock } from "./CodeBlock";
import { useScopedFold } from "./folds";
import { Unfold } from "./Unfold";

const PLUGINS = [remarkGfm];

/** Where it stands in the text: what the reader opened stays open while more is written behind it. */
function placeOf(node: Element | undefined): string {
  return String(node?.position?.start.offset ?? "");
}

function rowsOf(node: Element | undefined): number {
  const body = node?.children.find((child) => child.type === "element" && child.tagName === "tbody");
  return body?.type === "element" ? body.children.filter((child) => child.type === "element").length : 0;
}

/** As many rows are seen of a long table: the style sheet hides the others. */
const SHOWN_ROWS = 20;
const SLACK_ROWS = 5;

function FoldedTable({ place, rows, children }: { readonly place: string; readonly rows: number; readonly children: ReactNode }) {
  const [open, setOpen] = useScopedFold(`table:${place}`);
  const long = rows > SHOWN_ROWS + SLACK_ROWS;
  return (
    <div className="folded-table">
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrollable region must take focus */}
      <div className={long && !open ? "table-scroll folded" : "table-scroll"} role="group" aria-label="Table" tabIndex={0}>
        <table>{children}</table>
      </div>
      {long && <Unfold open={open} onToggle={setOpen} more={`Show all ${rows} rows`} less="Show fewer rows" />}
    </div>
  );
}

const COMPONENTS: Components = {
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noreferrer noopener">
      {children}
    </a>
  ),
  img: ({ src, alt }) => {
    const address = typeof src === "string" ? src : "";
    if (address.startsWith("data:image/")) return <img src={address} alt={alt ?? ""} />;
    return (
      <a href={address} target="_blank" rel="noreferrer noopener">
        {alt === undefined || alt === "" ? address : alt}
      </a>
    );
  },
  table: ({ node, children }) => (
    <FoldedTable place={placeOf(node)} rows={rowsOf(node)}>
      {children}
    </FoldedTable>
  ),
  pre: ({ children }) => <>{children}</>,
  code: ({ node, className, children }) => {
    const language = /language-([\w+-]+)/.exec(className ?? "")?.[1];
    const text = typeof children === "string" ? children : "";
    // A fenced block ends in a newline; code within a line has none.
    if (language === undefined && !text.endsWith("\n")) return <code>{children}</code>;
    return <FoldedCodeBlock place={placeOf(node)} text={text.replace(/\n$/, "")} language={language ?? ""} />;
  },
};

export const Markdown = memo(function Markdown({ text }: { readonly text: string }) {
  return (
    <div className="prose" dir="auto">
      <ReactMarkdown remarkPlugins={PLUGINS} components={COMPONENTS}>
        {text}
      </ReactMarkdown>
    </div>
  );
});
