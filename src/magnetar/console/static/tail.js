// Writes records below the head of a table as they come. All that came from clients is written as text.
(() => {
  "use strict";
  const most = 200;
  const rows = document.getElementById("tail");
  const note = document.getElementById("tail-note");
  const button = document.getElementById("tail-pause");
  let source = null;
  let last = "";

  const cell = (text, name) => {
    const made = document.createElement("td");
    made.textContent = text;
    if (name) made.className = name;
    return made;
  };

  const add = (record) => {
    const row = document.createElement("tr");
    const place = document.createElement("th");
    const link = document.createElement("a");
    link.href = record.link;
    link.textContent = record.offset;
    place.scope = "row";
    place.className = "n";
    place.append(link);
    const time = record.state ? `${record.time} ${record.state}` : record.time;
    row.append(cell(record.partition, "n"), place, cell(time), cell(record.key, "mono"), cell(record.value, "mono"));
    rows.prepend(row);
  };

  const begin = () => {
    source = new EventSource(rows.dataset.events);
    note.textContent = "Waiting for records.";
    button.textContent = "Pause";
    source.onmessage = (event) => {
      const told = JSON.parse(event.data);
      told.records.forEach(add);
      while (rows.rows.length > most) rows.deleteRow(-1);
      last = told.records.length ? told.records[told.records.length - 1].time : last;
      note.textContent = told.skipped ? `${told.skipped} records were skipped: more are written than are shown.` : `Last record: ${last}`;
    };
    source.addEventListener("end", (event) => {
      stop(`Ended: ${JSON.parse(event.data).reason}`);
    });
    source.onerror = () => {
      if (source && source.readyState === EventSource.CLOSED) stop("The broker does not answer, or too many pages are open.");
      else note.textContent = "The connection was lost; connecting again.";
    };
  };

  const stop = (text) => {
    if (source) source.close();
    source = null;
    note.textContent = text;
    button.textContent = "Go on";
  };

  button.hidden = false;
  button.addEventListener("click", () => (source ? stop("Paused.") : begin()));
  begin();
})();
