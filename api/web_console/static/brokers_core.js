// The brokers that are registered, and the loads that they state when they are asked. Decisions on
// values alone.

/** The brokers with their current loads: each is asked, so that names come first. */
export const LOADS_PATH = 'v1/admin/brokers';

/**
 * The registered brokers with the loads that they stated, null where one has not answered. What they
 * have published may be long over.
 * @param {any[]} registered @param {any[]} asked @returns {any[]}
 */
export function withLoads(registered, asked) {
  const loads = new Map(asked.map((each) => [each.broker_id, each]));
  return registered.map((each) => {
    const {partitions = null, in_bytes_per_s = null, out_bytes_per_s = null} = loads.get(each.broker_id) ?? {};
    return {...each, partitions, in_bytes_per_s, out_bytes_per_s};
  });
}
