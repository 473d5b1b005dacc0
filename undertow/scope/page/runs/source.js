// Where runs come from: the page itself, or the server, which goes on telling what is new.

import { embedded } from "scope/dom";
import { Run } from "runs/run";

const AGAIN_AFTER = 2000;

/** All runs. told(run index) is called when something was added; state(text, live) when the connection changes. */
export async function openRuns({ replaced, told, state }) {
  const data = await embedded("data");
  if (data.runs) {
    state("saved page", false);
    return data.runs.map((text, index) => runOf(index, text));
  }
  const runs = [];
  for (let index = 0; index < data.live; index += 1) runs.push(await load(index));
  const followed = runs.filter((run) => run.offset !== null).length;
  state(followed ? "live" : "from its CSV", followed > 0);
  runs.forEach((run, index) => run.offset !== null && follow(index, run, { replaced, told, state }));
  return runs;
}

function runOf(index, text) {
  return new Run("AB"[index], text.trimEnd().split("\n"));
}

async function load(index) {
  const answer = await fetch(`/run?number=${index}`);
  const text = await answer.text();
  if (!answer.ok) throw new Error(JSON.parse(text).error);
  return runOf(index, text);
}

/** Take every new line; after a break go on where it was. */
function follow(index, run, watcher) {
  const events = new EventSource(`/events?number=${index}&from=${run.offset}&file=${run.file}`);
  events.onopen = () => watcher.state("live", true);
  events.onmessage = (event) => {
    run.offset = Number(event.lastEventId);
    try {
      run.take(JSON.parse(event.data));
    } catch (problem) {
      if (!(problem instanceof SyntaxError)) throw problem;
      run.damaged += 1;
    }
    watcher.told(index);
  };
  events.addEventListener("closed", () => {
    events.close();
    watcher.state("training ended, page stays", false);
  });
  events.addEventListener("full", () => {
    events.close();
    watcher.state("too many pages are open: not live", false);
  });
  events.addEventListener("restart", async () => {
    events.close();
    const fresh = await load(index);
    watcher.replaced(index, fresh);
    follow(index, fresh, watcher);
  });
  events.onerror = () => {
    events.close();
    watcher.state("connection lost, trying again", false);
    setTimeout(() => again(index, run, watcher), AGAIN_AFTER);
  };
}

/** Ask quietly whether the server is there before a stream is opened: a refused one would be an error each time. */
async function again(index, run, watcher) {
  try {
    await fetch("/run?number=none");
  } catch {
    watcher.state("the server is gone, page stays", false);
    return;
  }
  follow(index, run, watcher);
}
