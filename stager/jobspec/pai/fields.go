package pai

// secondNames maps fields of the first format to their names in the second. They are used in
// comments about the origin of a line.
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

// field returns the name of a first-format field in the job's own format.
func (c *conversion) field(first string) string {
	if name := secondNames[first]; name != "" && c.second {
		return name
	}
	return first
}
