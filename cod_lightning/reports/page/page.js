// The page comes to life: data out of the script elements, sections drawn from them.

const overviewData = dataOf("overview-data");
drawOverview(overviewData);
unpacked("lifecycles-data").then(({ strings, packs, names, lifecycles }) =>
  new Browser(byId("lifecycles"), { strings, packs, lifecycles: named("lifecycles", lifecycles, names) }, overviewData));

// Rows of values with their names, those within them too.
function named(kind, rows, names) {
  return rows.map((row) => Object.fromEntries(names[kind].map((name, at) => [name, names[name] ? named(name, row[at], names) : row[at]])));
}
