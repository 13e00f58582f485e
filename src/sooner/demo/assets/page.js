// Says so when the server has gone away.
setInterval(async () => {
  let is = true;
  try { await fetch("/health", {cache: "no-store"}); } catch { is = false; }
  let box = document.getElementById("gone");
  if (is) { box && box.remove(); return; }
  if (!box) {
    box = document.createElement("div"); box.id = "gone"; box.setAttribute("role", "alert");
    document.body.append(box);
    box.textContent = "The server has gone away. What is shown stays; start the server again, "
      + "then reload this page.";
  }
}, 2000);
