/** The frame of the page: the list at the side (a drawer at phone width) and the content. */
import { createContext, useCallback, useContext, useEffect, useRef, useState } from "react";
import type { ReactNode } from "react";
import { useMediaQuery } from "../../app/hooks";
import { useServices } from "../../app/services";
import { useReadable } from "../../state/store";
import { CloseIcon, MenuIcon } from "../common/icons";
import { Sidebar } from "./Sidebar";

/** The width at which the list is a drawer, and panels lie over what they belong to. */
export const NARROW = "(max-width: 760px)";

const DrawerContext = createContext<() => void>(() => undefined);

/** Opens the list at phone width. Stands at the start of every page's header. */
export function DrawerButton() {
  const open = useContext(DrawerContext);
  return (
    <button type="button" className="icon-button drawer-button" aria-label="Open the list of conversations" data-testid="open-drawer" onClick={open}>
      <MenuIcon />
    </button>
  );
}

export function Shell({ children }: { readonly children: ReactNode }) {
  const narrow = useMediaQuery(NARROW);
  // Who came by a link has no list.
  const guest = useReadable(useServices().config)?.DRYDOCK?.guest === true;
  const [drawerWanted, setDrawerWanted] = useState(false);
  const drawer = narrow && drawerWanted;
  const aside = useRef<HTMLElement>(null);
  const opener = useRef<HTMLElement | null>(null);

  const open = useCallback(() => {
    opener.current = document.activeElement instanceof HTMLElement ? document.activeElement : null;
    setDrawerWanted(true);
  }, []);
  const close = useCallback(() => {
    setDrawerWanted(false);
  }, []);

  useEffect(() => {
    if (!drawer) return;
    aside.current?.querySelector<HTMLElement>(".drawer-close")?.focus();
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key === "Escape" && document.querySelector("dialog[open], :popover-open") === null) close();
    };
    window.addEventListener("keydown", onKeyDown);
    return () => {
      window.removeEventListener("keydown", onKeyDown);
      opener.current?.focus();
    };
  }, [drawer, close]);

  return (
    <DrawerContext.Provider value={open}>
      <div className={`shell${drawer ? " drawer-open" : ""}${guest ? " of-guest" : ""}`}>
        <a className="skip-link" href="#content">
          Skip to the content
        </a>
        {!guest && (
          <aside ref={aside} className="aside" aria-label="Conversations and settings" inert={narrow && !drawer} data-testid="sidebar">
            <Sidebar onLeave={close} />
          </aside>
        )}
        {/* A convenience for the pointer; the keyboard has Escape and the close button. */}
        <div className="backdrop" aria-hidden="true" onClick={close} />
        <main id="content" className="main" tabIndex={-1} inert={drawer}>
          {children}
        </main>
        <ToastList />
      </div>
    </DrawerContext.Provider>
  );
}

function ToastList() {
  const { toasts } = useServices();
  const list = useReadable(toasts.list);
  return (
    <div className="toasts" role="status" aria-live="polite">
      {list.map((toast) => (
        <div key={toast.key} className={`toast ${toast.level}`} data-testid="toast">
          <span>{toast.text}</span>
          <button type="button" className="icon-button small" aria-label="Dismiss" onClick={() => { toasts.dismiss(toast.key); }}>
            <CloseIcon size={15} />
          </button>
        </div>
      ))}
    </div>
  );
}
