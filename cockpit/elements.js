// Makes elements of the page. Every text becomes a text node, because disks choose their names.

/** Return an element with this class and these children: elements and texts. */
export function makeElement(name, className = "", ...children) {
    const element = document.createElement(name);
    if (className)
        element.className = className;
    element.append(...children.map((child) => child instanceof Node ? child : String(child)));
    return element;
}

/** Replace the children of the element with this id. */
export function fillElement(id, ...children) {
    document.getElementById(id).replaceChildren(...children);
}

/**
 * Return a table in a box that scrolls sideways.
 *
 * On a narrow screen each row is a card, whose cells show the title of their column.
 */
export function makeTable(label, columns, rows) {
    const table = makeElement("table", "cards");
    table.setAttribute("aria-label", label);
    const head = makeElement("tr", "", ...columns.map((title) => makeElement("th", "", title)));
    const body = makeElement("tbody");
    for (const row of rows) {
        const cells = row.map((cell) => cell instanceof HTMLTableCellElement ? cell
            : makeElement("td", "", cell));
        cells.forEach((cell, index) => { cell.dataset.title = columns[index]; });
        body.append(makeElement("tr", "", ...cells));
    }
    table.append(makeElement("thead", "", head), body);
    return table;
}

/** Return a cell for a word of hbatune; the style sheet has the colours of some words. */
export function makeWordCell(word) {
    const cell = makeElement("td", "", makeElement("span", "word", word));
    cell.firstChild.dataset.word = word;
    return cell;
}

export function makeNumberCell(text) {
    return makeElement("td", "number", text);
}

/** Return a paragraph with the messages of a command, each on its line. */
export function makeMessages(messages, className = "dim") {
    return makeElement("p", `messages ${className}`, messages.join("\n"));
}

/** Return the messages of a command that failed, for screen readers too. */
export function makeFailure(answer) {
    const messages = answer.messages.length > 0 ? answer.messages
        : [`hbatune has failed with exit code ${answer.code}`];
    const element = makeMessages(messages, "failure");
    element.setAttribute("role", "alert");
    return element;
}
