// What the page shows now. Views watch it and draw themselves again after each change.

/** The document with what views ask of it often worked out. */
export class Network {
  constructor(data) {
    Object.assign(this, data);
    this.shown = data.layers.filter((layer) => !layer.aside);
    // The way back: step 0 is the loss, step k the arrival at order[k - 1]. It does not come to data and the like.
    const computes = (layer) => layer.formula.length > 0 || this.reached(layer.index);
    this.order = this.shown.filter(computes).map((layer) => layer.index).reverse();
    if (this.order.length === 0) this.order = this.shown.map((layer) => layer.index).reverse();
    this.stepOf = new Map(this.shown.map((layer) => [layer.index, Infinity]));
    this.order.forEach((index, place) => this.stepOf.set(index, place + 1));
    this.readers = new Map(this.shown.map((layer) => [layer.index, []]));
    for (const layer of this.shown) {
      for (const source of layer.reads)
        if (source >= 0 && this.sends(layer, source)) this.readers.get(source)?.push(layer.index);
    }
    this.foldOf = new Map();
    this.folds.forEach((fold, place) => fold.layers.forEach((layer) => this.foldOf.set(layer, place)));
  }

  layer(index) {
    return this.layers[index];
  }

  /** Numbers of a layer in a run. */
  numbers(run, index) {
    return this.runs[run].layers[index];
  }

  /** {formula, skipped, story} of a layer in the dialect of a run. */
  told(run, index) {
    return this.numbers(run, index).told ?? this.layer(index);
  }

  /** Sheets of maps of a layer in a run: {output, gradient}, each null where there are none. */
  maps(run, index) {
    const { output, gradient } = this.numbers(run, index).maps;
    return { output: output === "same" ? this.numbers(0, index).maps.output : output, gradient };
  }

  /** The norm of the gradient of a layer's output, over its finite values; "nan" without those, null without any. */
  gradient(run, index) {
    return this.numbers(run, index).gradient.norm ?? null;
  }

  /** How many values of the gradient of a layer's output are not finite. */
  bad(run, index) {
    return this.numbers(run, index).gradient.bad ?? 0;
  }

  /** Whether a layer has values that are not finite: in its output, and, where the way back has come, its gradient. */
  notFinite(run, index, arrived) {
    return this.numbers(run, index).output.bad > 0 || (arrived && this.bad(run, index) > 0);
  }

  /** A number that is there, be it "nan". */
  static nonzero(value) {
    return value !== null && value !== undefined && value !== 0;
  }

  /** What `reader` sends to `source` in a run; null where nothing is known. */
  sent(run, reader, source) {
    return this.numbers(run, reader).sent[source] ?? null;
  }

  /** Whether a gradient goes from a layer to one that it reads: not to data and priors, and not from measures. */
  sends(layer, source) {
    if (!this.reached(source)) return false;
    return layer.formula.length > 0 || this.runs.some((_, run) => Network.nonzero(this.sent(run, layer.index, source)));
  }

  /** Whether a gradient arrives at a layer in some run. */
  reached(index) {
    return this.runs.some((_, place) => this.gradient(place, index) !== null);
  }

  /** Whether this run sends nothing where another run does. */
  lost(run, reader, source) {
    return (
      this.sent(run, reader, source) === 0 &&
      this.runs.some((_, other) => other !== run && Network.nonzero(this.sent(other, reader, source)))
    );
  }

  className(number) {
    return this.names[number] ?? `class ${number}`;
  }
}

/** Values with watchers: store.set({step: 3}) tells every watcher which ones changed. */
export class Store {
  constructor(values) {
    this.values = values;
    this.watchers = [];
  }

  watch(watcher) {
    this.watchers.push(watcher);
  }

  set(changes) {
    const changed = Object.keys(changes).filter((key) => this.values[key] !== changes[key]);
    if (changed.length === 0) return;
    Object.assign(this.values, changes);
    for (const watcher of this.watchers) watcher(this.values, new Set(changed));
  }
}
