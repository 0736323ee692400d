/** Who are you: a token becomes a session. It is sent once, and kept nowhere in the page. */

import { Failure, login } from "./api.js";
import { h } from "./dom.js";
import { heading } from "./view.js";

/** Show the form; `then(identity)` is called after it. */
export function showLogin(place, then) {
  const token = h("input", {
    id: "token",
    type: "password",
    required: true,
    autocomplete: "current-password",
    spellcheck: "false",
    "aria-describedby": "token-hint",
  });
  const refused = h("p", { class: "refused", role: "alert" });
  const form = h(
    "form",
    {
      class: "login card",
      on: {
        submit: async (event) => {
          event.preventDefault();
          try {
            const identity = await login(token.value.trim());
            token.value = "";
            await then(identity);
          } catch (error) {
            if (!(error instanceof Failure)) throw error;
            refused.replaceChildren(error.message);
            token.select();
          }
        },
      },
    },
    h("label", { for: "token" }, "Token"),
    token,
    h(
      "p",
      { class: "hint", id: "token-hint" },
      "From your fleet's administrator: ",
      h("code", {}, "fleetd token new NAME"),
    ),
    refused,
    h("div", { class: "dialog-buttons" }, h("button", { type: "submit", class: "primary" }, "Log in")),
  );
  place.replaceChildren(heading("Log in"), form);
  document.title = "Log in · fleetd";
  token.focus();
}
