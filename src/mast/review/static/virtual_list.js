/** A list of any length of which only the rows in view exist. */

export class VirtualList {
  /**
   * @param {HTMLElement} box scrolls
   * @param {number} row_height in pixels
   * @param {(index: number) => HTMLElement} render
   * @param {(first: number, last: number) => void} inView called with the rows in view
   */
  constructor(box, row_height, render, inView) {
    this.box = box;
    this.row_height = row_height;
    this.render = render;
    this.inView = inView;
    this.count = 0;
    this.active = true;
    this.spacer = document.createElement("div");
    this.spacer.className = "spacer";
    box.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(box);
  }

  setCount(count) {
    this.count = count;
    this.draw();
  }

  get range() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.row_height) - 3);
    const last = Math.min(this.count, Math.ceil((this.box.scrollTop + this.box.clientHeight) / this.row_height) + 3);
    return [first, last];
  }

  draw() {
    if (!this.active) return;
    const [first, last] = this.range;
    this.spacer.style.height = `${this.count * this.row_height}px`;
    const rows = [];
    for (let index = first; index < last; index++) {
      const row = this.render(index);
      row.style.transform = `translateY(${index * this.row_height}px)`;
      row.style.height = `${this.row_height}px`;
      row.setAttribute("aria-posinset", String(index + 1));
      row.setAttribute("aria-setsize", String(this.count));
      rows.push(row);
    }
    this.spacer.replaceChildren(...rows);
    if (this.spacer.parentNode !== this.box) this.box.replaceChildren(this.spacer);
    if (last > first) this.inView(first, last - 1);
  }

  /** Scroll as little as needed to see a row. */
  show(index) {
    const top = index * this.row_height;
    const { scrollTop, clientHeight } = this.box;
    if (top < scrollTop) this.box.scrollTop = Math.max(0, top - this.row_height);
    else if (top + this.row_height > scrollTop + clientHeight) {
      this.box.scrollTop = top + 2 * this.row_height - clientHeight;
    }
    this.draw();
  }
}
