/** A picture whose data is in the log. A tall one is folded to its upper part. */
import { useState } from "react";
import { useScopedFold } from "./folds";
import { Unfold } from "./Unfold";

interface PictureProps {
  readonly src: string;
  readonly alt: string;
  /** Its place in the row it stands in. */
  readonly place: string;
  readonly className?: string;
}

/** In CSS pixels; a little more than this is shown at once. */
const FOLDED_HEIGHT = 420;
const SLACK = 80;

export function Picture({ src, alt, place, className = "" }: PictureProps) {
  const [open, setOpen] = useScopedFold(`picture:${place}`);
  const [tall, setTall] = useState(false);
  return (
    <div className={`picture ${className}`.trim()}>
      <div className={tall && !open ? "picture-frame folded" : "picture-frame"}>
        <img
          src={src}
          alt={alt}
          onLoad={(event) => {
            // A folded picture keeps its own height within the frame.
            setTall(event.currentTarget.offsetHeight > FOLDED_HEIGHT + SLACK);
          }}
        />
      </div>
      {tall && <Unfold open={open} onToggle={setOpen} more="Show the whole picture" less="Show its upper part only" />}
    </div>
  );
}
