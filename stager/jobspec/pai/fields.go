package pai

// secondNames are what the second format calls what the first one has, for the comments
// that say where a line comes from.
var secondNames = map[string]string{
	"authFile":                       "auth",
	"codeDir, dataDir and outputDir": "storages",
	"cpuNumber, memoryMB, gpuNumber": "resourcePerInstance",
	"gpuType":                        "hivedScheduler's kind of GPU",
	"jobName":                        "name",
	"minFailedTaskCount":             "minFailedInstances",
	"minSucceededTaskCount":          "minSucceededInstances",
	"retryCount":                     "jobRetryCount",
	"taskNumber":                     "instances",
}

// field is what the job's own format calls a field of the first one.
func (c *conversion) field(first string) string {
	if name := secondNames[first]; name != "" && c.second {
		return name
	}
	return first
}
