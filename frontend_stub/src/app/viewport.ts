/** Keeps the page as high as what is seen of it: some browsers lay the on-screen keyboard over the page. */

const PROPERTY = "--seen-height";

/** Follows the visual viewport until the returned function is called. */
export function followViewport(viewport: VisualViewport | null = window.visualViewport): () => void {
  const style = document.documentElement.style;
  const follow = () => {
    // Zoomed in, less is seen on purpose.
    if (viewport?.scale !== 1) style.removeProperty(PROPERTY);
    else style.setProperty(PROPERTY, `${viewport.height}px`);
  };
  follow();
  viewport?.addEventListener("resize", follow);
  return () => {
    viewport?.removeEventListener("resize", follow);
    style.removeProperty(PROPERTY);
  };
}
