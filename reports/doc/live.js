// A live page: each event has all sections. Only those that differ are replaced, so that focus and scroll positions stay.
(function () {
  "use strict";
  const status = document.getElementById("live"), main = document.querySelector("main");
  const source = new EventSource(status.dataset.events);
  function show(event) {
    const next = document.createElement("template");
    next.innerHTML = JSON.parse(event.data);
    Array.from(next.content.children).forEach(function (section) {
      const old = document.getElementById(section.id);
      if (!old) main.append(section);
      else if (old.innerHTML !== section.innerHTML) old.replaceWith(section);
    });
  }
  source.onmessage = show;
  source.onopen = () => { status.textContent = ""; };
  source.onerror = () => { status.textContent = "No connection to the run."; };
  source.addEventListener("end", function (event) {
    show(event);
    source.close();
    status.textContent = "The run has ended.";
  });
})();
