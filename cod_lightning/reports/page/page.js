// The page comes to life: data out of the script elements, sections drawn from them.

const overviewData = dataOf("overview-data");
drawOverview(overviewData);
unpacked("lifecycles-data").then((data) => new Browser(byId("lifecycles"), data, overviewData));
