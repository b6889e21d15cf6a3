// The page comes to life: data out of the script elements, sections drawn from them.

const overviewData = dataOf("overview-data");
drawOverview(overviewData);
new Browser(byId("lifecycles"), dataOf("lifecycles-data"), overviewData);
