/** Changes: each is asked for in a dialog with a required reason; what the controller answers is shown as it is. */

import { Failure, part, post } from "./api.js";
import { h, prose } from "./dom.js";

const REASON_MAX = 1000;

/** What can be done with a host: label, what it means, further fields, and what goes into the body. */
const HOST_ACTIONS = {
  quarantine: {
    label: "Quarantine",
    means: "Your hold keeps the host from its users until you or an override lift it.",
    danger: true,
    fields: [
      select("drain", "Its work leaves", [
        ["", "as the policy has it"],
        ["job_end", "at the end of each job"],
        ["checkpoint", "after the next checkpoint"],
        ["now", "now: jobs are requeued"],
      ]),
    ],
  },
  release: {
    label: "Release",
    means: "Lifts the holds if what they ask for is proven. Otherwise the answer says what is missing.",
    overridable: true,
    asSeen: true, // evidence that came while the reason was written has not been weighed
  },
  burnin: {
    label: "Burn-in",
    means: "Runs a burn-in; without a level, the one that makes the host healthy or its release possible.",
    fields: [
      select("level", "Level", [
        ["", "what is asked for"],
        ...["self", "smoke", "quick", "qualify", "burnin", "soak"].map((level) => [level, level]),
      ]),
    ],
  },
  repair: { label: "Repair", means: "Leaves the host to a person: nothing runs on it, its holds stay." },
  repaired: { label: "Repaired", means: "Ends the repair with the burn-in that proves the host." },
  swap: {
    label: "GPU swapped",
    means: "Takes note of an exchange; what the old GPU is accused of stays with its serial.",
    fields: [input("old", "Id of the GPU that left"), input("new", "Id of the GPU that came")],
  },
  retire: { label: "Retire", means: "Takes the host out of the fleet for good.", danger: true, asSeen: true },
};

/** What can be done with the fleet. */
const FLEET_ACTIONS = {
  rearm: {
    path: () => "/budgets/rearm",
    label: "Re-arm budgets",
    means: "Lets automatic quarantines through again; each host is judged as it is now, not by the backlog.",
  },
  stop: {
    path: () => "/automation/stop",
    label: "Stop automation",
    means: "Stops every automatic action in the fleet at once. What people ask for still goes through.",
    danger: true,
  },
  resume: {
    path: () => "/automation/resume",
    label: "Resume automation",
    means: "Takes the kill switch back. Parked orders are validated again before they are carried out.",
  },
  close: {
    path: (incident) => `/incidents/${part(incident)}/close`,
    label: "Close incident",
    means: "Closes the incident; its hosts are judged as they are, unless you acquit them.",
    fields: [checkbox("acquit", "Acquit its hosts: what they are charged with was not their fault")],
  },
};

function select(name, label, options) {
  return {
    name,
    label,
    make: () =>
      h(
        "select",
        { name, id: `field-${name}` },
        options.map(([value, text]) => h("option", { value }, text)),
      ),
    read: (field) => (field.value === "" ? undefined : field.value),
  };
}

function input(name, label) {
  return {
    name,
    label,
    make: () => h("input", { name, id: `field-${name}`, required: true, maxlength: 200, autocomplete: "off" }),
    read: (field) => field.value.trim(),
  };
}

function checkbox(name, label) {
  return {
    name,
    label,
    tick: true,
    make: () => h("input", { type: "checkbox", name, id: `field-${name}` }),
    read: (field) => field.checked,
  };
}

/** Buttons for a host as it is seen, which `version` says. A viewer sees them, and why he cannot use them. */
export function hostButtons(ctx, { name, version }, verbs = Object.keys(HOST_ACTIONS)) {
  return h(
    "div",
    { class: "buttons", role: "group", "aria-label": `Actions on ${name}` },
    verbs.map((verb) => {
      const action = HOST_ACTIONS[verb];
      const begin = () => ask(ctx, { ...action, about: name, path: `/hosts/${part(name)}/${verb}`, verb, version });
      return button(ctx, action, begin, `${verb}:${name}`, `${action.label} ${name}`);
    }),
  );
}

/** A button for something about the fleet; `about` is an incident's id, where it is about one. */
export function fleetButton(ctx, verb, about = null) {
  const action = FLEET_ACTIONS[verb];
  const begin = () => ask(ctx, { ...action, about: about ?? "the fleet", path: action.path(about), verb });
  return button(ctx, action, begin, `${verb}:${about ?? ""}`, about ? `${action.label} ${about}` : action.label);
}

function button(ctx, action, begin, key, name) {
  const may = ctx.identity.role === "operator";
  return h(
    "button",
    {
      type: "button",
      class: action.danger ? "danger" : null,
      "data-key": key,
      "aria-label": name,
      "aria-disabled": may ? null : "true",
      title: may
        ? action.means
        : `${action.label}: ${ctx.identity.name} is a ${ctx.identity.role}; operators change things`,
      on: { click: () => (may ? begin() : ctx.say(`only an operator may: ${action.label}`)) },
    },
    action.label,
  );
}

/** Open the dialog of an action. */
function ask(ctx, action) {
  const fields = [...(action.fields ?? [])];
  const made = new Map(fields.map((field) => [field, field.make()]));
  const reason = h("textarea", { id: "field-reason", name: "reason", required: true, rows: 3, maxlength: REASON_MAX });
  const refused = h("div", { class: "refused", role: "alert" });
  const extra = h("div", {});
  const submit = h("button", { type: "submit", class: action.danger ? "danger primary" : "primary" }, action.label);
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "dialog-title" }, `${action.label}: `, h("span", { class: "about" }, action.about)),
    h("p", { class: "note", id: "dialog-means" }, action.means),
    h("label", { for: "field-reason" }, "Reason"),
    reason,
    h("p", { class: "hint" }, "Required. It stands in the audit trail, and in the scheduler beside the host."),
    fields.map((field) => row(field, made.get(field))),
    refused,
    extra,
    h(
      "div",
      { class: "dialog-buttons" },
      h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel"),
      submit,
    ),
  );
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", "aria-describedby": "dialog-means" }, form);
  const before = document.activeElement?.dataset?.key ?? null;
  dialog.addEventListener("close", () => {
    dialog.remove();
    focusAgain(before);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(ctx, action, { fields, made, reason, refused, extra, submit, dialog });
  });
  document.body.append(dialog);
  dialog.showModal();
  reason.focus();
}

function row(field, node) {
  const label = h("label", { for: node.id }, field.label);
  return h("div", { class: field.tick ? "field tick" : "field" }, field.tick ? [node, label] : [label, node]);
}

async function send(ctx, action, parts) {
  const { fields, made, reason, refused, submit, dialog } = parts;
  if (submit.getAttribute("aria-disabled") === "true") return;
  const body = { reason: reason.value.trim() };
  if (body.reason === "") {
    refused.replaceChildren("Say why: a change needs a reason.");
    reason.focus();
    return;
  }
  for (const field of fields) body[field.name] = field.read(made.get(field));
  submit.setAttribute("aria-disabled", "true");
  try {
    const answer = await post(action.path, body, action.asSeen ? action.version : null);
    dialog.close();
    ctx.say(`${action.about}: ${action.label.toLowerCase()} — ${answer.why ?? "done"}`);
    ctx.refresh();
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    refused.replaceChildren(h("p", {}, prose(error.message)));
    if (action.overridable && error.status === 409) offerOverride(parts);
  } finally {
    submit.removeAttribute("aria-disabled");
  }
}

/** After a refusal for want of proof: the same once more, against it. Never offered before. */
function offerOverride({ fields, made, extra }) {
  if (fields.some((field) => field.name === "override")) return;
  const field = checkbox("override", "Override: release without this proof. The audit trail says so.");
  fields.push(field);
  made.set(field, field.make());
  extra.replaceChildren(row(field, made.get(field)));
}

function focusAgain(key) {
  const node = key === null ? null : document.querySelector(`[data-key=${CSS.escape(key)}]`);
  (node ?? document.querySelector("main h1"))?.focus();
}
