// Where numbers stand on an axis. uPlot has no marks for numbers far from 1, and fails below 1e-32: it gets others to draw.

/** On an axis of powers of ten, smaller numbers stand here, at its lower edge. */
export const LEAST = 1e-30;
const [TINY, HUGE] = [1e-5, 1e9]; // numbers between them are drawn as they are
const GREATEST = Math.floor(Math.log10(Number.MAX_VALUE));
const MOST_MARKS = 5;

/** Even steps, in a unit that is a power of ten where the numbers are all small, or some are large. */
export class Even {
  #unit = 1;

  /** Lines of numbers as they are drawn. */
  take(lines) {
    let most = 0;
    for (const line of lines) for (const value of line) if (Number.isFinite(value)) most = Math.max(most, Math.abs(value));
    const far = most > 0 && (most < TINY || most >= HUGE);
    this.#unit = far ? 10 ** Math.max(Math.floor(Math.log10(most)), -307) : 1;
    return far ? lines.map((line) => Array.from(line, (value) => (value === null ? null : value / this.#unit))) : lines;
  }

  /** The number that is drawn at a place. */
  value(place) {
    return place * this.#unit;
  }
}

/** Powers of ten, drawn by their exponents; what is 0 or less has no place. */
export class Powers {
  take(lines) {
    return lines.map((line) => Array.from(line, (value) => (value > 0 && value < Infinity ? Math.log10(Math.max(value, LEAST)) : null)));
  }

  value(place) {
    return 10 ** place;
  }

  /** What an axis says at its mark: the lowest one stands for all that is smaller. */
  text(place, text) {
    return place <= Math.log10(LEAST) ? `≤${text(LEAST)}` : text(this.value(place));
  }

  /** Whole powers around the numbers. */
  range(_, low, high) {
    if (low === null || low === undefined) return [null, null];
    const first = Math.floor(low + 1e-9);
    return [first, Math.max(Math.ceil(high - 1e-9), first + 1)];
  }

  /** At most five powers; where there are but two, 2 and 5 between them too. */
  marks(low, high) {
    if (high - low <= 1) return [low, low + Math.log10(2), low + Math.log10(5), high];
    const step = Math.ceil((high - low + 1) / MOST_MARKS);
    const found = [];
    const first = low <= Math.log10(LEAST) ? low : Math.ceil(low / step) * step;
    for (let power = first; power <= Math.min(high, GREATEST); power += step) found.push(power);
    return found;
  }
}
