"use strict";
/* Shows records of `sooner demo`: every element with class "sooner" and a record in data-record. */
(() => {
  const WHO = {
    target: ["the big model itself", "no tint"], draft: ["guessed by the small model (the draft), kept by the big one", "tinted, underlined"],
    lookup: ["copied from earlier in the text, kept by the big model", "tinted, underlined"],
    head: ["guessed by a trained draft head, kept by the big model", "tinted, underlined"],
    short: ["guessed by the big model on a shortened memory, kept by the whole one", "tinted, underlined"],
    ocr: ["read by OCR, kept by the big model", "tinted, underlined"],
    before: ["drawn in the iteration before, kept", "tinted, underlined"] };
  const NAMES = { draft: "the small model", lookup: "the earlier text", head: "the draft head", short: "the shortened memory" };
  const SVG = "http://www.w3.org/2000/svg";
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const memory = new Map();  // where each record stood, so that nothing is lost when the page draws itself again

  function el(name, given = {}, ...inside) {
    const made = ["svg", "g", "rect", "line", "text", "path", "circle", "title", "polygon"].includes(name) && given.svg !== false
      ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(given)) {
      if (key === "svg" || value === null || value === undefined || value === false) continue;
      if (key === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
      else made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...inside.filter(one => one !== null && one !== undefined));
    return made;
  }
  const secs = x => x < 1 ? Math.round(1000 * x) + "\u00a0ms" : x.toFixed(x < 10 ? 2 : 1) + "\u00a0s";
  // A ratio of two single runs is no more exact than this.
  const rough = x => x.toFixed(x < 2 ? 1 : 0) + "×";
  const pace = x => x === null || x === undefined ? "–" : x > 1.05 ? `about ${rough(x)} as fast` : x < 1 / 1.05 ? `slower (about ${rough(1 / x)} the time)` : "about as fast";
  const share = x => x === null || x === undefined ? "–" : (100 * x).toFixed(x > .995 && x < 1 ? 2 : 0) + " %";
  const fact = (value, name, kind = "") => el("div", { class: "fact" }, el("b", { class: kind }, value), el("span", {}, name));
  const toy = record => record.is_toy ? el("p", { class: "soft toy" }, "The bundled models are toys that run anywhere: what they gain says nothing about large models.") : "";
  const heading = (text, level = "h3") => el(level, {}, text), soft = text => el("p", { class: "soft" }, text);

  function clock(length, slow, tell, key) {
    let at = still.matches ? length : 0, playing = false, last = 0;
    const speed = el("select", { "aria-label": "Speed of the replay" },
      ...[1, 2, 5, 10, 20, 50].map(n => el("option", { value: n }, n === 1 ? "in real time" : `shown ${n}× slower`)));
    speed.value = [1, 2, 5, 10, 20, 50].reduce((a, b) => Math.abs(b - slow) < Math.abs(a - slow) ? b : a);
    const play = el("button", { type: "button", on: { click: () => { if (at >= length) at = 0; playing ? stop() : go(); } } }, "Play");
    const end = el("button", { type: "button", on: { click: () => { set(length); stop(); } } }, "To the end");
    const slider = el("input", { type: "range", min: 0, max: 1000, value: 0, "aria-label": "Time of the replay",
      on: { input: () => { set(length * slider.value / 1000); stop(); } } });
    const shown = el("span", { class: "soft" });
    function set(value) {
      at = Math.min(Math.max(value, 0), length);
      slider.value = Math.round(1000 * at / length);
      slider.setAttribute("aria-valuetext", secs(at));
      shown.textContent = `${secs(at)} of ${secs(length)}`;
      memory.set(key, at);
      tell(at);
    }
    function step(now) {
      if (!playing || !shown.isConnected) return;
      set(at + (now - last) / 1000 / Number(speed.value));
      last = now;
      at >= length ? stop() : requestAnimationFrame(step);
    }
    function go() { playing = true; play.textContent = "Pause"; last = performance.now(); requestAnimationFrame(step); }
    function stop() { playing = false; play.textContent = at >= length ? "Replay" : "Play"; }
    const bar = el("div", { class: "bar" }, play, end, slider, shown, speed);
    return { bar, set, begin() { const seen = memory.get(key); if (seen !== undefined) set(seen); else if (still.matches) set(length); else { set(0); go(); } stopped(); }, isPlaying: () => playing };
    function stopped() { if (!playing) stop(); }
  }

  function lane(record, run, name, won, pick) {
    const spans = run.tokens.map((token, index) => el("span", { class: `tok o-${won ? token.o : "target"}`, tabindex: index ? -1 : 0,
      role: "button", "aria-label": `${token.t.trim() || "space"}: ${WHO[token.o][0]}`, on: { click: () => pick(run, index, spans), keydown: move } }, token.t));
    function move(event) {
      const index = spans.indexOf(event.currentTarget), to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: spans.length - 1 }[event.key];
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(run, index, spans); }
      if (to === undefined || !spans[to] || spans[to].hidden) return;
      event.preventDefault(); spans[index].tabIndex = -1; spans[to].tabIndex = 0; spans[to].focus();
    }
    const fill = el("i"), told = el("span", { class: "soft" }), text = el("div", { class: "text", role: "group", "aria-label": `${name}: the answer, word by word` }, ...spans);
    const box = el("div", { class: won ? "lane won" : "lane" }, heading(name), told, el("div", { class: "meter", "aria-hidden": true }, fill), text);
    return { box, text, show(at) {
      let count = 0, round = 0;
      for (const one of run.rounds) { if (one.e > at) break; count += one.n; round += 1; }
      spans.forEach((span, index) => { span.hidden = index >= count; });
      fill.style.width = 100 * count / Math.max(spans.length, 1) + "%";
      const done = count >= spans.length;
      told.textContent = `${count} of ${spans.length} words and parts of words · the big model was asked ${round} times` + (done ? ` · done in ${secs(run.seconds)}` : "");
      if (!done && count) text.scrollTop = text.scrollHeight;
    } };
  }

  const depths = parents => parents.reduce((found, parent) => [...found, parent < 0 ? 0 : found[parent] + 1], []);

  function follow(first, second, isBusy) {  // readers scroll both lanes, or neither
    for (const [one, other] of [[first, second], [second, first]]) one.addEventListener("scroll", () => {
      const to = one.scrollTop / Math.max(one.scrollHeight - one.clientHeight, 1) * (other.scrollHeight - other.clientHeight);
      if (!isBusy() && Math.abs(other.scrollTop - to) > 1) other.scrollTop = to;
    });
  }

  function guesses(round) {  // a line for each branch of the draft; a chain has one
    const kept = new Set(round.path), rows = [];
    const below = node => round.parents.flatMap((parent, kid) => parent === node ? [kid] : []).sort((a, b) => kept.has(b) - kept.has(a));
    for (const open = [[-1, below(-1)]]; open.length;) {
      const [from, kids] = open.shift();
      for (const kid of kids) {
        const nodes = [];
        rows.push({ after: rows.length ? from : null, nodes });
        for (let node = kid; node !== undefined;) {
          nodes.push(node);
          const [next, ...others] = below(node);
          if (others.length) open.push([node, others]);
          node = next;
        }
      }
    }
    const word = node => el("span", { class: kept.has(node) ? "guess kept" : "guess", title: kept.has(node) ? "accepted" : "thrown away" }, (kept.has(node) ? "✓ " : "✗ ") + (round.draft[node].trim() || "space"));
    return el("div", { class: "guesses" }, ...rows.map(row => el("p", {}, row.after === null ? "" : el("span", { class: "soft" }, row.after < 0 ? "or: " : `or, after “${round.draft[row.after].trim()}”: `), ...row.nodes.map(word))));
  }

  function detail(record, run, index, box) {
    const token = run.tokens[index], round = run.rounds[token.r], isDraft = token.o !== "target";
    const place = isDraft ? `level ${token.d} of the draft` : "behind the accepted guesses: the big model's own next word";
    const rows = [["word", `“${token.t.trim() || token.t}”`], ["who wrote it", WHO[token.o][0]],
      ["probability that the big model gave it", share(token.p)], ["round", `${token.r + 1} of ${run.rounds.length}`], ["place", place]];
    box.replaceChildren(heading("The word that you picked"), el("table", {}, ...rows.map(([a, b]) => el("tr", {}, el("th", { scope: "row" }, a), el("td", {}, b)))),
      round.draft.length ? heading(`Round ${token.r + 1}: ${round.draft.length} guesses, ${round.path.length} accepted, then 1 word of the big model's own`)
        : soft(token.r ? "Nothing was guessed in this round." : "The first round reads video and question; nothing is guessed yet."),
      round.draft.length ? guesses(round) : null);
  }

  function byDepth(run) {
    const offered = [], taken = [];
    for (const round of run.rounds) for (let level = 0; level <= Math.max(-1, ...depths(round.parents)); level++) {
      offered[level] = (offered[level] || 0) + 1; taken[level] = (taken[level] || 0) + (round.path.length > level ? 1 : 0); }
    const parts = offered.map((count, level) => Math.round(100 * taken[level] / count));
    return [heading("How often a guess is accepted, by its depth"), soft("A round is one question to the big model. First bar: of the rounds that guessed at all, the percentage in which the first guessed word was kept; second bar: of those that guessed two words, in which the second was kept as well; and so on. Few rounds guess as far as the last bars."),
      parts.length ? el("div", { class: "depths", role: "img", "aria-label": "Accepted guesses by depth: " + parts.map((part, level) => `${level + 1}: ${part} %`).join(", ") },
        ...parts.map((part, level) => el("span", {}, String(part), el("i", { style: `--part:${part}%` }), String(level + 1)))) : soft("Nothing was guessed.")];
  }

  function timeline(record) {
    const beside = record.beside?.length ? record.beside : null;  // when each forward of a draft ran that works side by side
    const runs = [[record.plain, "plain"], [record.fast, "accelerated"]].filter(([run]) => run), length = Math.max(...runs.map(([run]) => run.seconds));
    const box = el("div"), lines = [], scale = x => 1000 * x / length;
    let svg;
    const strip = name => { const line = el("line", { x1: 0, x2: 0, y1: 0, y2: 22, stroke: "var(--ink)", "stroke-width": 2, "vector-effect": "non-scaling-stroke" });
      lines.push(line); svg = el("svg", { width: "100%", height: 22, viewBox: "0 0 1000 22", preserveAspectRatio: "none", role: "img", "aria-label": name }, line); box.append(el("div", { class: "strip" }, name), svg); };
    const put = (from, to, colour, name) => svg.insertBefore(el("rect", { x: scale(from), y: 0, width: Math.max(scale(to) - scale(from) - .4, .8), height: 22, fill: colour }, el("title", {}, `${name}: ${secs(to - from)}`)), svg.lastChild);
    for (const [run, name] of runs) {
      strip(`${name}: the big model`);
      run.rounds.forEach((one, index) => put(one.v, one.e, index ? "var(--target)" : "var(--line)", index ? `check of round ${index + 1}` : "reading video and question"));
      if (name === "plain") continue;
      const waits = run.rounds.map((one, index) => [one.s, one.v, index]).filter(([begin]) => begin !== null);
      if (beside) waits.forEach(([begin, end, index]) => put(begin, end, "color-mix(in srgb,var(--bad) 55%,transparent)", `waiting for guesses of round ${index + 1}`));
      strip(`accelerated: ${NAMES[record.origin] || "the draft"}${beside ? ", beside" : ""}`);
      if (beside) beside.forEach(([begin, end], index) => put(begin, end, "var(--draft)", `guess ${index + 1}`));
      else waits.forEach(([begin, end, index]) => put(begin, end, "var(--draft)", `guessing for round ${index + 1}`));
    }
    const waits = beside ? "They work side by side: a violet bar is one guess of the small model, in a process of its own. Red: the big model waits, since the guesses are not there yet." : "They take turns: where one has a bar, the other waits.";
    box.prepend(heading("Who waits for whom"), soft(`Grey: the big model. Violet: guesses. Light: reading the ${asked(record)}${beside ? " (the small model does so at the same time)" : ""}. ${waits} The tall line is the time of the replay; the whole width is ${secs(length)}.`));
    return { box, show(at) { lines.forEach(line => { line.setAttribute("x1", scale(at)); line.setAttribute("x2", scale(at)); }); } };
  }

  function legend(origin) {
    return el("ul", { class: "legend", "aria-label": "What the colours mean" }, ...["target", origin].map(one =>
      el("li", {}, el("span", { class: `tok o-${one}` }, " word "), ` ${WHO[one][0]} (${WHO[one][1]})`)));
  }
  const asked = record => record.frames?.length ? "video" : "question";
  const frames = record => !record.frames?.length ? "" : el("div", { class: "frames", tabindex: 0, role: "group", "aria-label": `The ${record.frames.length} frames that the models see` },
    ...record.frames.map((one, index) => {
      const kept = (record.kept || [])[index] || [], side = Math.round(Math.sqrt(kept.length)), seen = kept.filter(Boolean).length;
      const told = kept.length ? `frame ${index + 1}: ${seen} of ${kept.length} patches shown to the draft` : `frame ${index + 1}`;
      const grid = kept.length && side * side === kept.length ? el("span", { class: "patches", "aria-hidden": "true", style: `grid-template-columns: repeat(${side}, 1fr)` },
        ...kept.map(one => el("i", one ? {} : { class: "out" }))) : "";
      return el("span", { class: "frame", title: told }, el("img", { src: one, alt: told }), grid);
    }));

  function race(record, root) {
    const done = !record.live, box = el("div", { role: "region", "aria-label": "The word that you picked", "aria-live": "polite" }, soft("Click a word, or walk through them with the arrow keys."));
    const pick = (run, index, spans) => { root.querySelectorAll(".picked").forEach(one => one.classList.remove("picked")); spans[index].classList.add("picked"); detail(record, run, index, box); };
    if (!done) {
      root.append(heading(record.live, "h2"), frames(record));
      if (record.fast) { const fast = lane(record, record.fast, "Accelerated", true, pick); fast.show(Infinity); root.append(legend(record.origin), fast.box); fast.box.querySelector(".text").scrollTop = 1e6; }
      return;
    }
    const who = NAMES[record.origin] || "a quick helper", length = Math.max(record.plain.seconds, record.fast.seconds), last = Math.max(...record.fast.rounds.map(one => one.draft.length));
    const verdict = record.parity ? record.parity.verdict : (record.same ? "identical" : null);
    const same = record.same ? "The same answer" : record.parity ? "Nearly the same answer" : "An answer drawn by the same odds";
    const [before, now] = [record.plain.seconds, record.fast.seconds];
    root.append(heading(verdict === "bug" ? "Another answer, which is a bug: please report it" : `${same} after ${secs(now)} instead of ${secs(before)}: ${pace(before / now)}`, "h2"), toy(record),
      el("p", {}, `Left, the big model writes alone: it is asked once for every single word. Right, ${who} guesses the next few words (up to ${last} here), and the big model checks all of them in one go, in about the time that one word takes. ` +
        (record.parity ? "Guesses that are exactly what it would have written are kept, tinted; from the first wrong one on they are thrown away. So the text cannot change, and " : "Guesses are kept, tinted, as often as its own odds allow, and thrown away from the first one on that they do not. So every answer stays as likely as before, and ") + " the big model is asked less often: ", el("b", {}, `${record.fast.rounds.length} times instead of ${record.plain.rounds.length}.`)),
      legend(record.origin), frames(record), record.kept ? soft("Darkened patches were left out of what the draft sees, to make it quicker; the big model sees all.") : "", soft(`Asked: “${record.prompt}” · the big model: ${record.model}, on ${record.device}`));
    const slow = lane(record, record.plain, "Plain: the big model alone", false, pick), fast = lane(record, record.fast, "Accelerated: guess, then check", true, pick), line = timeline(record);
    const ticking = clock(length, 10 / length, at => { slow.show(at); fast.show(at); line.show(at); }, record.key || record.title + length);
    root.append(ticking.bar, soft("Recorded one after the other on this machine, and replayed on one clock."),
      el("div", { class: "lanes" }, slow.box, fast.box),
      el("div", { class: "facts" }, fact(`${secs(before)} → ${secs(now)}`, `waited for the answer, reading the ${asked(record)} included`), fact(pace(record.speedup), `writing alone, reading the ${asked(record)} left out`),
        fact(share(record.stats.acceptance_rate), "of what was guessed ahead was kept"), fact((record.fast.tokens.length / record.fast.rounds.length).toFixed(1), "words for each question to the big model"),
        fact(record.mode, `mode: the text ${record.mode === "exact" ? "can’t" : "may"} differ from plain’s`), verdict === "identical" ? fact("✓ word for word", "the same text as plain", "good")
          : verdict === "tie" ? fact("a tie", "two words were equally likely within rounding") : verdict ? fact("✗ differs", "a bug: please report it", "bad") : fact("drawn", record.mode === "exact" ? "by chance: same distribution" : "by chance")),
      box, line.box, ...byDepth(record.fast), ...(record.notes || []).map(soft));
    follow(slow.text, fast.text, ticking.isPlaying);
    ticking.begin();
  }

  function picture(record, root) {
    const [rows, columns] = record.grid, all = rows * columns, [plain, ...rest] = record.lanes, best = rest.at(-1), length = Math.max(...record.lanes.map(one => one.seconds));
    root.append(heading(`A picture in ${best.drawn.length} iterations instead of ${plain.drawn.length}: ${secs(best.seconds)} instead of ${secs(plain.seconds)}, ${pace(plain.seconds / best.seconds)}`, "h2"), toy(record), el("p", {}, "A code is the number that stands for one small square of the picture. An iteration is one question to the big model, " +
      `which plain drawing asks for every code: ${plain.drawn.length} times. Jacobi decoding asks about many codes at once, guesses them from the iteration before and keeps those that turn out right: ${rest[0].drawn.length} iterations. ` +
      `If each new guess also holds on to the one before wherever the odds allow, more of them agree: ${best.drawn.length} iterations. Chance falls differently in each, so the pictures differ; their odds are the same.`), soft(`Prompt: “${record.prompt}”. The three were drawn one after the other, and are replayed on one clock.`));
    const boxes = record.lanes.map(one => {
      const canvas = el("canvas", { width: 192, height: Math.round(192 * rows / columns), role: "img", "aria-label": `${one.name}: the picture` }), told = el("p", { class: "soft" }), image = new Image();
      image.src = one.png; const pen = canvas.getContext("2d"), w = canvas.width / columns, h = canvas.height / rows, square = code => [w * (code % columns), h * Math.floor(code / columns)];
      let last = 0;
      const show = at => { last = at; const step = Math.min(Math.floor(one.drawn.length * at / one.seconds + 1e-6), one.drawn.length), drawn = one.drawn[step - 1] || 0;
        pen.clearRect(0, 0, canvas.width, canvas.height); if (image.complete && image.naturalWidth) pen.drawImage(image, 0, 0, canvas.width, canvas.height);
        pen.fillStyle = "#808080"; for (let code = drawn; code < all; code++) pen.fillRect(...square(code), w + .5, h + .5);
        pen.strokeStyle = "#ff00c8"; pen.lineWidth = 2;
        if (drawn < all) for (let code = one.drawn[step - 2] || 0; code < drawn; code++) { const [x, y] = square(code); pen.strokeRect(x + 1, y + 1, w - 2, h - 2); }
        told.textContent = `${drawn} of ${all} codes after ${step} iterations` + (step >= one.drawn.length ? ` · done in ${secs(one.seconds)}` : ""); };
      image.onload = () => show(last);
      return { show, box: el("figure", {}, heading(one.name), soft(one.about), canvas, told) };
    });
    const ticking = clock(length, 10 / length, at => boxes.forEach(one => one.show(at)), record.key || "picture" + length);
    root.append(ticking.bar, el("div", { class: "three" }, ...boxes.map(one => one.box)), soft("A square is one code. Pink: codes that the last iteration fixed. Grey: not drawn yet."));
    ticking.begin();
  }

  function waited(pages) {
    if (!pages.every(one => one.seconds)) return "A page, read with the help of a draft; no speed-up, since the two texts can’t be compared";
    const [before, now] = [0, 1].map(way => pages.reduce((sum, one) => sum + one.seconds[way], 0));
    return `${pages.every(one => one.parity === "identical") ? "The same Markdown" : "Nearly the same Markdown"} after ${secs(now)} instead of ${secs(before)}: ${pace(before / now)}`;
  }

  function pages(record, root) {
    let at = 0, zoom = 1; const body = el("div"), tell = part => part === null ? "var(--target)" : part > .9 ? "var(--good)" : part > .5 ? "var(--short)" : "var(--bad)";
    root.append(heading(waited(record.pages), "h2"), toy(record), el("p", {}, "A quick reader (OCR, or the text inside a PDF) writes a rough draft of the page. The big model follows the draft wherever it would have written the same, many words at a time, " +
      "and corrects the rest. Colours say how much of each region came from the draft."));
    const move = step => { at = Math.min(Math.max(at + step, 0), record.pages.length - 1); show(); }, grow = step => { zoom = Math.min(Math.max(zoom + step, 1), 4); show(); };
    const press = (text, act) => el("button", { type: "button", on: { click: act } }, text), number = el("span", { class: "soft", "aria-live": "polite" });
    root.append(el("div", { class: "bar" }, press("◀ Page", () => move(-1)), press("Page ▶", () => move(1)), press("Zoom in", () => grow(.5)), press("Zoom out", () => grow(-.5)), number),
      el("ul", { class: "legend" }, ...[[1, "over 90 % of the words were the draft's"], [.7, "over half"], [0, "less: mostly the big model's own"], [null, "not told"]].map(([part, name]) =>
        el("li", {}, el("span", { class: "tok", style: `border:2px solid ${tell(part)};padding:0 .5rem` }, " "), " " + name))), body);
    function show() {
      const page = record.pages[at], mark = el("pre", { "aria-label": "Markdown of the page", tabindex: 0, role: "group" }, page.markdown), text = el("div", { class: "page", tabindex: 0, role: "group", "aria-label": "Text of the page" });
      text.innerHTML = page.html;  // made by the server of the Markdown, which lets nothing but text and tables through
      const read = el("p", { class: "soft", "aria-live": "polite" }, "Pick a region to see its text.");
      const boxes = page.regions.filter(one => one.box).map(one => { const [x0, y0, x1, y1] = one.box, choose = () => { read.textContent = `${one.label}: ${one.share === null ? "" : share(one.share) + " accepted. "}“${one.text}”`; const begin = page.markdown.indexOf(one.text.trim());
          const block = [...text.querySelectorAll("p,li,h1,h2,h3,h4,h5,h6,td,th,pre")].find(now => now.textContent && one.text.replaceAll(/[#*]/g, "").trim().startsWith(now.textContent.trim().slice(0, 40)));
          text.querySelectorAll(".chosen").forEach(now => now.classList.remove("chosen")); block?.classList.add("chosen"); block?.scrollIntoView({ block: "nearest" });
          if (begin >= 0) mark.replaceChildren(page.markdown.slice(0, begin), el("mark", {}, one.text.trim()), page.markdown.slice(begin + one.text.trim().length)); };
        return el("a", { role: "button", tabindex: 0, "aria-label": `${one.label}, ${share(one.share)} accepted`, style: `--c:${tell(one.share)};left:${x0 / 10}%;top:${y0 / 10}%;width:${(x1 - x0) / 10}%;height:${(y1 - y0) / 10}%`,
          on: { click: choose, keydown: event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } } } }); });
      number.textContent = `page ${at + 1} of ${record.pages.length}, ${Math.round(100 * zoom)} %`;
      body.replaceChildren(el("div", { class: "two" }, el("div", { class: "sheet", tabindex: 0, role: "group", "aria-label": "The page" }, el("div", { style: `width:${100 * zoom}%` }, el("img", { src: page.image, alt: `page ${at + 1}` }), ...boxes)), el("div", {}, read, text, el("details", {}, el("summary", {}, "As Markdown"), mark))),
        el("div", { class: "facts" }, fact(page.seconds ? `${secs(page.seconds[0])} → ${secs(page.seconds[1])}` : "–", `waited for the page, ${secs(page.drafting)} of it for the draft`), fact(pace(page.speedup), "decoding alone"), fact(page.steps, "times the big model was asked"), fact(page.tokens, "words and signs of the page"), fact(page.mode, "mode"), fact(page.parity === "identical" ? "✓ letter by letter" : page.parity || "not compared", "the same text as plain", page.parity === "identical" ? "good" : "")));
    }
    show();
  }

  const KINDS = { race, picture, pages };
  function mount(root) {
    const text = root.getAttribute("data-record");
    if (root.shown === text) return;
    root.shown = text; root.replaceChildren();
    try { const record = JSON.parse(text); KINDS[record.kind](record, root); }
    catch (error) { root.replaceChildren(el("p", { class: "bad", role: "alert" }, `This record can't be shown: ${error.message}`)); }
  }
  const look = () => document.querySelectorAll(".sooner[data-record]").forEach(mount);
  new MutationObserver(look).observe(document.documentElement, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-record"] });
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", look) : look();
})();
