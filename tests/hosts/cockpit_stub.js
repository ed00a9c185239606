// Stands in for Cockpit's cockpit.js: `spawn` answers with recorded output instead of a process.
// `ANSWERS` has the exit codes and outputs of each command in order; the last one stays. With the
// code null, the command prints its output and runs until `cockpit.endCommand(code)`. A text
// instead of a code is a problem of Cockpit: the command has not started.

/* global ANSWERS, ALLOWED */
/* exported cockpit */

const cockpit = {
    calls: [],

    spawn([program, ...words], { superuser, err }) {
        const command = words.join(" ");
        cockpit.calls.push([command, superuser]);
        console.assert(program === "hbatune" && err === "out");
        const answers = ANSWERS[command] ?? [[2, `no answer for ${command}\n`]];
        const [code, output] = answers.length > 1 ? answers.shift() : answers[0];
        let print = () => {};
        let end;
        const process = new Promise((resolve, reject) => {
            end = (status) => {
                const hasStarted = typeof status === "number";
                if (status === 0)
                    resolve("");
                else
                    reject({
                        exit_status: hasStarted ? status : null,
                        problem: hasStarted ? null : status,
                        message: hasStarted ? `exited with ${status}` : status,
                    });
            };
        });
        process.stream = (callback) => { print = callback; };
        process.close = () => {};
        cockpit.endCommand = end;
        queueMicrotask(() => {
            // In pieces, as a pipe delivers them.
            for (let start = 0; start < output.length; start += 1000)
                print(output.slice(start, start + 1000));
            if (code !== null)
                end(code);
        });
        return process;
    },

    permission() {
        return { allowed: ALLOWED, addEventListener() {} };
    },
};
