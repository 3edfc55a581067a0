import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./App";
import { createServices } from "./app/services";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/conversation.css";
import "./styles/items.css";
import "./styles/forms.css";
import "./styles/hosts.css";
import "./styles/workspace.css";
import "./styles/ports.css";
import "./styles/touch.css";

const root = document.getElementById("root");
if (root === null) throw new Error("index.html must have an element #root");
createRoot(root).render(
  <StrictMode>
    <App services={createServices()} />
  </StrictMode>,
);
