// Charts, drawn by plotly in the page's own colours.
const COLOURS = ["#78b8ff", "#4fc48d", "#e6b655", "#c79bf2", "#f58084", "#5cc8d7", "#d7a26d", "#9ba6b5"];
const GRID = "#2a323d";

const axis = (more) => ({ gridcolor: GRID, zerolinecolor: GRID, linecolor: GRID, automargin: true, fixedrange: true, ...more });

export const layout = (more = {}) => ({
  paper_bgcolor: "rgba(0,0,0,0)",
  plot_bgcolor: "rgba(0,0,0,0)",
  font: { family: "system-ui, sans-serif", size: 12, color: "#9ba6b5" },
  colorway: COLOURS,
  margin: { l: 44, r: 12, t: 8, b: 32 },
  showlegend: false,
  hoverlabel: { bgcolor: "#1b222b", bordercolor: GRID, font: { color: "#e8ebf0" } },
  ...more,
  xaxis: axis(more.xaxis),
  yaxis: axis(more.yaxis),
});

/** Draw or update a chart. Plotly interprets text as markup, so callers escape it with `plain`. */
export const drawChart = (place, traces, more) => window.Plotly.react(place, traces, layout(more), { displayModeBar: false, responsive: true });

export const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
