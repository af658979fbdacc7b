// Looks at the page as the browser shows it and tells the page around it what it finds.
const errors = [];
addEventListener("error", (event) => errors.push(String(event.message || event.target.outerHTML)), true);
addEventListener("load", () => {
  document.querySelectorAll("details").forEach((fold) => (fold.open = true));
  const shown = (element) => element.getClientRects().length > 0;
  const light = (colour) => {
    const [red, green, blue] = colour.match(/[\d.]+/g).map((part) => {
      const value = part / 255;
      return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const ground = getComputedStyle(document.body).backgroundColor;
  const plots = [...document.querySelectorAll("svg.plot")].filter(shown);
  const letters = plots.flatMap((plot) => {
    const scale = plot.getBoundingClientRect().width / plot.viewBox.baseVal.width;
    return [...plot.querySelectorAll("text")].map((text) => {
      const style = getComputedStyle(text);
      return { size: parseFloat(style.fontSize) * scale, contrast: contrast(style.fill, ground) };
    });
  });
  const lines = plots.flatMap((plot) => [...plot.querySelectorAll("path")])
    .map((path) => getComputedStyle(path)).filter((style) => style.stroke.startsWith("rgb") && parseFloat(style.strokeWidth) >= 1.5);
  const boxes = [...document.querySelectorAll(".scroll")];
  const inBox = (element) => element.closest(".scroll") || element.closest("svg");
  const cells = [...document.querySelectorAll(".heat td[class], .heat tbody th")].filter(shown);
  const found = {
    errors,
    width: innerWidth,
    pageWidth: document.documentElement.scrollWidth,
    ground: light(ground),
    outside: [...document.querySelectorAll("body *")].filter((e) => shown(e) && !inBox(e) && e.getBoundingClientRect().right > innerWidth + 1)
      .map((e) => e.outerHTML.slice(0, 80)),
    boxesTooWide: boxes.filter((box) => shown(box) && box.getBoundingClientRect().right > innerWidth).length,
    boxesThatScroll: boxes.filter((box) => shown(box) && box.scrollWidth > box.clientWidth + 1)
      .map((box) => box.getAttribute("aria-label").slice(0, 40)),
    numTables: boxes.filter(shown).length,
    smallestTableLetter: Math.min(...[...document.querySelectorAll(".table th, .table td, .table small")].filter(shown)
      .map((cell) => parseFloat(getComputedStyle(cell).fontSize))),
    plots: plots.map((plot) => Math.round(plot.getBoundingClientRect().width)),
    smallestLetter: Math.min(...letters.map((letter) => letter.size)),
    leastContrast: Math.min(...letters.map((letter) => letter.contrast)),
    faintestLine: Math.min(...lines.map((style) => contrast(style.stroke, ground))),
    images: [...document.images].map((image) => image.naturalWidth),
    namelessImages: [...document.images].filter((image) => !image.alt).length,
    smallestHeatLetter: Math.min(...cells.map((cell) => parseFloat(getComputedStyle(cell).fontSize))),
    narrowestCell: Math.min(...[...document.querySelectorAll(".heat td")].filter(shown).map((cell) => cell.getBoundingClientRect().width)),
    cutCells: cells.filter((cell) => cell.tagName === "TD" && cell.scrollWidth > cell.clientWidth + 1).length,
    faintestCell: Math.min(...cells.filter((cell) => cell.tagName === "TD")
      .map((cell) => contrast(getComputedStyle(cell).color, getComputedStyle(cell).backgroundColor))),
  };
  parent.postMessage(JSON.stringify(found, (key, value) => (value === Infinity ? null : value)), "*");
});
