/** Code with colours once they are loaded; before that, and for very long code, plain. */
import type { ElementContent, Root, RootContent } from "hast";
import { Fragment, useEffect, useState } from "react";
import type { ReactNode } from "react";
import { CopyButton } from "./CopyButton";
import { useScopedFold } from "./folds";
import { Unfold } from "./Unfold";
import { madeVisible } from "./Visible";

type Highlight = (text: string, language: string) => Root | null;

/** Longer code is not coloured: it would hold up the page. */
const LIMIT = 40_000;

const EXTENSIONS: Readonly<Record<string, string>> = {
  py: "python", js: "javascript", mjs: "javascript", jsx: "javascript", ts: "typescript", tsx: "typescript",
  sh: "bash", bash: "bash", c: "c", h: "c", cc: "cpp", cpp: "cpp", hpp: "cpp", css: "css", go: "go", toml: "ini",
  ini: "ini", cfg: "ini", java: "java", json: "json", rb: "ruby", rs: "rust", sql: "sql", html: "xml", xml: "xml",
  svg: "xml", yml: "yaml", yaml: "yaml",
};

/** The language of a file by its name; empty when it is not known. */
export function languageOf(path: string): string {
  const name = path.slice(path.lastIndexOf("/") + 1).toLowerCase();
  if (name === "makefile") return "makefile";
  return EXTENSIONS[name.slice(name.lastIndexOf(".") + 1)] ?? "";
}

let loaded: Highlight | null = null;

function useHighlight(wanted: boolean): Highlight | null {
  const [highlight, setHighlight] = useState<Highlight | null>(() => loaded);
  useEffect(() => {
    if (!wanted || loaded !== null) return;
    let current = true;
    import("./highlight").then(
      (module) => {
        loaded = module.highlight;
        if (current) setHighlight(() => module.highlight);
      },
      () => undefined, // Without colours the code is as readable as before.
    );
    return () => {
      current = false;
    };
  }, [wanted]);
  return highlight;
}

function draw(nodes: readonly (RootContent | ElementContent)[]): ReactNode[] {
  return nodes.map((node, index) => {
    if (node.type === "text") return <Fragment key={index}>{madeVisible(node.value)}</Fragment>;
    if (node.type !== "element") return null;
    const names = node.properties.className;
    return (
      <span key={index} className={Array.isArray(names) ? names.join(" ") : undefined}>
        {draw(node.children)}
      </span>
    );
  });
}

export function Code({ text, language }: { readonly text: string; readonly language: string }) {
  const wanted = language !== "" && text.length <= LIMIT;
  const highlight = useHighlight(wanted);
  const tree = wanted && highlight !== null ? highlight(text, language) : null;
  return <code>{tree === null ? madeVisible(text) : draw(tree.children)}</code>;
}

interface CodeBlockProps {
  readonly text: string;
  readonly language: string;
}

export function CodeBlock({ text, language }: CodeBlockProps) {
  return (
    <div className="code-block">
      {/* Keyboard users scroll wide code with the arrow keys. */}
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrollable region must take focus */}
      <pre tabIndex={0} role="group" aria-label="Code">
        <Code text={text} language={language} />
      </pre>
      <CopyButton text={text} />
    </div>
  );
}

/** Longer code in what the agent says is folded to its beginning. */
const SHOWN_LINES = 30;
const SLACK_LINES = 6;

/** Code among text: a long block is folded. `place` tells it apart in its row. */
export function FoldedCodeBlock({ place, text, language }: CodeBlockProps & { readonly place: string }) {
  const [open, setOpen] = useScopedFold(`code:${place}`);
  const lines = text.split("\n");
  if (lines.length <= SHOWN_LINES + SLACK_LINES) return <CodeBlock text={text} language={language} />;
  return (
    <div className="folded-code">
      <div className="code-block">
        {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrollable region must take focus */}
        <pre tabIndex={0} role="group" aria-label="Code">
          <Code text={open ? text : lines.slice(0, SHOWN_LINES).join("\n")} language={language} />
        </pre>
        <CopyButton text={text} />
      </div>
      <Unfold open={open} onToggle={setOpen} more={`Show all ${lines.length} lines`} less="Show fewer lines" />
    </div>
  );
}
