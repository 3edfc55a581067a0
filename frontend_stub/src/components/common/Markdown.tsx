/** Text of the agent. Markup of its own is never taken as HTML, and pictures from elsewhere are only linked. */
import { memo } from "react";
import ReactMarkdown from "react-markdown";
import type { Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { CodeBlock } from "./CodeBlock";

const PLUGINS = [remarkGfm];

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
  table: ({ children }) => (
    <div className="table-scroll">
      <table>{children}</table>
    </div>
  ),
  pre: ({ children }) => <>{children}</>,
  code: ({ className, children }) => {
    const language = /language-([\w+-]+)/.exec(className ?? "")?.[1];
    const text = typeof children === "string" ? children : "";
    // A fenced block ends in a newline; code within a line has none.
    if (language === undefined && !text.endsWith("\n")) return <code>{children}</code>;
    return <CodeBlock text={text.replace(/\n$/, "")} language={language ?? ""} />;
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
