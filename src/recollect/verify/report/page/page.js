(() => {
  "use strict";
  const page = document.documentElement;
  page.classList.add("js");
  const cards = [...document.querySelectorAll("details.run")];
  const said = document.getElementById("said");

  // Opening a run also opens the fold around it.
  const unfold = (card) => {
    for (let fold = card.closest("details.fold"); fold; fold = fold.parentElement.closest("details.fold")) fold.open = true;
  };

  // A link to a run opens it, even if the filter had hidden it.
  const open = () => {
    const card = location.hash && document.getElementById(location.hash.slice(1));
    if (!card || !card.matches("details.run")) return;
    card.hidden = false;
    unfold(card);
    card.open = true;
    card.scrollIntoView();
    card.querySelector("summary").focus({ preventScroll: true });
  };
  addEventListener("hashchange", open);

  for (const button of document.querySelectorAll("button.filter")) {
    button.addEventListener("click", () => {
      const pressed = button.getAttribute("aria-pressed") !== "true";
      for (const other of document.querySelectorAll("button.filter")) other.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", String(pressed));
      let shown = 0;
      for (const card of cards) {
        card.hidden = pressed && card.dataset.status !== button.dataset.status;
        shown += card.hidden ? 0 : 1;
        if (pressed && !card.hidden) unfold(card);
      }
      said.textContent = shown + " runs shown";
    });
  }

  const select = (element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
  };
  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", async () => {
      const code = button.previousElementSibling;
      try {
        await navigator.clipboard.writeText(code.textContent);
      } catch {
        select(code);
        document.execCommand("copy");
      }
      button.textContent = "copied";
      said.textContent = "command copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
  }

  // On paper a closed run would be an empty line.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details.run, details.fold")].filter((card) => !card.open);
    for (const card of closed) card.open = true;
  });
  addEventListener("afterprint", () => { for (const card of closed) card.open = false; });
  open();
})();
