/** Colours for code, in a part of the bundle that is loaded when the first code appears. */
import type { Root } from "hast";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import makefile from "highlight.js/lib/languages/makefile";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { createLowlight } from "lowlight";

const lowlight = createLowlight({
  bash, c, cpp, css, diff, go, ini, java, javascript, json, makefile, python, ruby, rust, sql, typescript, xml, yaml,
});
lowlight.registerAlias({ bash: ["shell", "console"], ini: ["toml"] });

/** The coloured tree of a text, or null for a language that is not known. */
export function highlight(text: string, language: string): Root | null {
  return lowlight.registered(language) ? lowlight.highlight(language, text) : null;
}
