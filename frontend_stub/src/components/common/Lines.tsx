/** The body plan of a hull, as shipwrights draw it: decoration for empty places. */

const STATIONS = 7;
const HALF_BREADTH = 150;
const DEPTH = 170;

/** A frame of the hull: full amidships, fine towards the ends. */
function station(index: number, side: 1 | -1): string {
  const fullness = 1 - index / STATIONS;
  const breadth = HALF_BREADTH * (0.32 + 0.68 * Math.sqrt(fullness));
  const bilge = DEPTH * (0.3 + 0.62 * fullness);
  const deck = -10 - 16 * (1 - fullness);
  const x = (value: number) => (side * value).toFixed(1);
  return `M${x(breadth)} ${deck.toFixed(1)}C${x(breadth * 0.98)} ${bilge.toFixed(1)} ${x(breadth * (0.25 + 0.6 * fullness))} ${DEPTH} 0 ${DEPTH}`;
}

export function Lines() {
  const frames = Array.from({ length: STATIONS }, (_, index) => index);
  const waterlines = [30, 65, 100, 135];
  return (
    <svg className="lines" viewBox="-200 -40 400 230" aria-hidden="true" focusable="false">
      {waterlines.map((depth) => (
        <path key={depth} className={depth === 30 ? "lines-load" : "lines-water"} d={`M-190 ${depth}H190`} />
      ))}
      <path className="lines-water" d={`M0 -34V${DEPTH}`} />
      {frames.map((index) => (
        <path key={index} className="lines-frame" d={station(index, 1) + station(index, -1)} />
      ))}
    </svg>
  );
}
