// What the tests ask of a page, from within it. Rectangles are in CSS pixels of the page.
window.probes = (() => {
  const hidden = (node) => {
    const element = node.nodeType === 1 ? node : node.parentElement;
    if (element.closest(".sr, .skip, script, style, title")) return true;
    const closed = element.closest("details:not([open])");
    if (closed && !element.closest("summary")) return true;
    return getComputedStyle(element).visibility !== "visible";
  };

  // Lines of text: where each stands, cut where a box around it scrolls.
  const lines = () => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = [];
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (!node.data.trim() || hidden(node)) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      const box = node.parentElement.closest(".scroll")?.getBoundingClientRect();
      // What is stuck to the left hides what scrolls below it.
      if (node.parentElement.closest(".scroll")?.scrollLeft > 0) continue;
      for (const r of range.getClientRects()) {
        const right = box ? Math.min(r.right, box.right) : r.right;
        if (right - r.left < 1 || r.height < 1) continue;
        found.push({ text: node.data.trim().slice(0, 60), left: r.left, right, top: r.top + scrollY, bottom: r.bottom + scrollY, node });
      }
    }
    return found;
  };

  // Pairs of texts that cover each other by more than a few pixels; line boxes may touch.
  const overlaps = () => {
    const all = lines().sort((a, b) => a.top - b.top);
    const found = [];
    all.forEach((a, at) => {
      for (let next = at + 1; next < all.length && all[next].top < a.bottom - 4; next++) {
        const b = all[next];
        const [x, y] = [Math.min(a.right, b.right) - Math.max(a.left, b.left), Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)];
        if (x > 1.5 && y > 4) found.push([a.text, b.text]);
      }
    });
    return found;
  };

  const color = (text) => {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 1;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.fillStyle = text;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, below) => top.slice(0, 3).map((value, at) => value * top[3] / 255 + below[at] * (1 - top[3] / 255));
  const luminance = (rgb) => rgb.map((value) => value / 255).map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);

  // Texts whose contrast to what is behind them is below what WCAG 2.2 asks of small text (4.5).
  const faint = () => {
    const known = new Map();
    const rgba = (text) => known.get(text) ?? known.set(text, color(text)).get(text);
    const found = new Map();
    for (const { node, text } of lines()) {
      const element = node.parentElement;
      const behind = [];
      let opacity = 1;
      for (let at = element; at; at = at.parentElement) {
        behind.push(rgba(getComputedStyle(at).backgroundColor));
        opacity *= Number(getComputedStyle(at).opacity);
      }
      const ground = behind.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
      const style = getComputedStyle(element);
      const ink = rgba(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
      const shown = over([...ink.slice(0, 3), ink[3] * opacity], ground);
      const [light, dark] = [luminance(shown), luminance(ground)].sort((a, b) => b - a);
      const contrast = (light + 0.05) / (dark + 0.05);
      if (contrast < 4.5) found.set(text, contrast.toFixed(2));
    }
    return [...found];
  };

  const box = (selector) => [...document.querySelectorAll(selector)].map((element) => {
    const r = element.getBoundingClientRect();
    return [r.left, r.top + scrollY, r.width, r.height];
  });

  return { overlaps, faint, box, lines: () => lines().length };
})();
0;
