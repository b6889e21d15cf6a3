// The page comes to life: data out of the script elements, sections drawn from them.

const overviewData = dataOf("overview-data");
drawOverview(overviewData);
unpacked("lifecycles-data").then((lives) => new Browser(byId("lifecycles"), lives, overviewData));
