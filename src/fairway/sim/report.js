// Draws the five sections of report.html from the JSON inside it. Every chart is an element with class "uplot".
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const colours = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22"];
  const colour = row => colours[row % colours.length];
  const width = Math.min(1040, document.body.clientWidth - 20);
  const seconds = v => v < 120 ? v + "s" : v < 7200 ? +(v / 60).toFixed(1) + "m" : v < 172800 ? +(v / 3600).toFixed(1) + "h" : +(v / 86400).toFixed(1) + "d";
  const time = {label: "time from the start of the load (s, m, h or d)", values: (u, splits) => splits.map(v => seconds(v))};

  function place(id, caption, options, values) {
    const parent = document.getElementById(id);
    if (caption) {
      const title = document.createElement("p");
      title.className = "note";
      title.textContent = caption;
      parent.append(title);
    }
    new uPlot({width, height: 290, scales: {x: {time: false}}, ...options}, values, parent);
  }

  const steps = (label, row, extra = {}) => ({label, stroke: colour(row), width: 1.5, points: {show: false}, paths: uPlot.paths.stepped({align: 1}), ...extra});

  const cdfs = data.policies.map(name => data.waits[name]);
  place("waits", "", {
    scales: {x: {time: false, distr: 3}, y: {range: [0, 1]}},
    axes: [{label: "wait (s, m, h or d)", values: (u, splits) => splits.map(v => v == null ? "" : seconds(v))}, {label: "part of jobs (1: all)"}],
    series: [{label: "wait", value: (u, v) => v == null ? "" : seconds(v)}, ...data.policies.map((name, row) => ({label: name, stroke: colour(row), width: 2, spanGaps: true, points: {show: false}}))],
  }, uPlot.join(cdfs.map(([x, y]) => {
    // one wait can be reached by many jobs: keep the highest part for each
    const last = new Map(x.map((v, i) => [v, y[i]]));
    return [[...last.keys()], [...last.values()]];
  })));

  const overTime = {axes: [time, {label: "GPUs"}]};
  for (const name of data.policies) {
    const one = data.series[name];
    place("utilisation", name, {...overTime, series: [{label: "time"}, steps("held", 0, {fill: "#1f77b430"}), steps("there", 8)]}, [one.times, one.held, one.capacity]);
    const queues = Object.keys(one.queues);
    place("queues", name, {...overTime, series: [{label: "time"}, ...queues.map((queue, row) => steps(queue, row))]}, [one.times, ...queues.map(queue => one.queues[queue])]);
    place("fragmentation", name, {...overTime, series: [{label: "time"}, steps("stranded", 1, {fill: "#d6272830"})]}, [one.times, one.stranded]);
    gantt(name, data.gantt[name]);
  }

  function gantt(name, chart) {
    const from = chart.bars.reduce((a, bar) => Math.min(a, bar[1]), chart.bars.length ? Infinity : 0);
    const to = chart.bars.reduce((a, bar) => Math.max(a, bar[2]), from + 1);
    const draw = u => {
      const {ctx} = u;
      ctx.save();
      for (const [row, start, end, queue] of chart.bars) {
        const x = u.valToPos(start, "x", true), y = u.valToPos(row + 0.9, "y", true);
        ctx.fillStyle = colour(queue) + "b0";
        ctx.fillRect(x, y, Math.max(1, u.valToPos(end, "x", true) - x), u.valToPos(row + 0.1, "y", true) - y);
      }
      ctx.restore();
    };
    place("gantt", `${name}: the ${chart.shown} runs with most GPU-time, of ${chart.runs}; a colour for each queue: ${chart.queues.join(", ")}`, {
      height: Math.max(180, Math.min(700, 70 + 14 * chart.nodes.length)),
      axes: [time, {label: "node", size: 110, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], values: (u, splits) => splits.map(v => chart.nodes[v] ?? "")}],
      scales: {x: {time: false, range: [from, to]}, y: {range: [0, Math.max(1, chart.nodes.length)]}},
      series: [{label: "time"}, {label: "node", paths: () => null, points: {show: false}}],
      hooks: {draw: [draw]},
    }, [[from, to], [0, 0]]);
  }
})();
